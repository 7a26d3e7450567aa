//! Binding to NVML, NVIDIA's management library, loaded with `dlopen`: the program starts without it, and a machine
//! without it has no GPUs. Binds only the functions that the inventory needs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use corro_model::host::Gpu;

const NAMES: [&CStr; 2] = [c"libnvidia-ml.so.1", c"libnvidia-ml.so"];
const NAME_BYTES: usize = 96;
const MAX_GPUS: c_uint = 64;

type Device = *mut c_void;

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

struct Library {
    shutdown: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    device: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    name: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    memory: unsafe extern "C" fn(Device, *mut Memory) -> c_int,
}

/// The GPUs of this machine, in the order of their NVML indices.
pub fn gpus() -> Vec<Gpu> {
    let Some(library) = open() else { return Vec::new() };
    let mut found = Vec::new();
    let mut count = 0;
    // SAFETY: `open` returns a library on which `nvmlInit_v2` succeeded, as `count` and `gpu` require. `count` is a
    // valid `c_uint` for the result. The library is shut down after the last call.
    unsafe {
        if (library.count)(&mut count) == 0 {
            found.extend((0..count.min(MAX_GPUS)).filter_map(|index| gpu(&library, index)));
        }
        (library.shutdown)();
    }
    found
}

/// Name and memory of one GPU.
///
/// # Safety
/// `nvmlInit_v2` must have succeeded on `library`, and `nvmlShutdown` must not have been called since.
unsafe fn gpu(library: &Library, index: c_uint) -> Option<Gpu> {
    let mut device: Device = std::ptr::null_mut();
    let (mut name, mut memory) = ([0 as c_char; NAME_BYTES], Memory::default());
    // SAFETY: the library is initialized (obligation of this function). `device` and `memory` are valid for the
    // results; `name` has `NAME_BYTES` bytes and one less is passed, so the zeroed last byte terminates it even if the
    // call wrote nothing.
    unsafe {
        if (library.device)(index, &mut device) != 0 {
            return None;
        }
        (library.name)(device, name.as_mut_ptr(), NAME_BYTES as c_uint - 1);
        (library.memory)(device, &mut memory);
        let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        Some(Gpu { name, memory_bytes: memory.total })
    }
}

/// Loads and initializes NVML. The library stays loaded: drivers do not support unloading.
fn open() -> Option<Library> {
    // SAFETY: the library names and symbols are C strings. The signatures are those of NVML's documented C API, which
    // is stable for the `_v2` names, so each transmute turns a symbol into a function pointer of its own type.
    unsafe {
        let handle =
            NAMES.iter().map(|name| libc::dlopen(name.as_ptr(), libc::RTLD_NOW)).find(|found| !found.is_null())?;
        let symbol = |name: &CStr| {
            let found = libc::dlsym(handle, name.as_ptr());
            (!found.is_null()).then_some(found)
        };
        let init: unsafe extern "C" fn() -> c_int = std::mem::transmute(symbol(c"nvmlInit_v2")?);
        let library = Library {
            shutdown: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(symbol(c"nvmlShutdown")?),
            count: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_uint) -> c_int>(symbol(
                c"nvmlDeviceGetCount_v2",
            )?),
            device: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(symbol(
                c"nvmlDeviceGetHandleByIndex_v2",
            )?),
            name: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int>(
                symbol(c"nvmlDeviceGetName")?,
            ),
            memory: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Device, *mut Memory) -> c_int>(symbol(
                c"nvmlDeviceGetMemoryInfo",
            )?),
        };
        (init() == 0).then_some(library)
    }
}
