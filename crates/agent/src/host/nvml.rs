//! NVIDIA's management library, looked for at run time: a machine without it has no GPUs, and the program needs none to start.
//! Only what an inventory needs.

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

/// The GPUs of this machine in the library's order, which is that of their numbers.
pub fn gpus() -> Vec<Gpu> {
    let Some(library) = open() else { return Vec::new() };
    let mut found = Vec::new();
    let mut count = 0;
    // SAFETY: the library was started, and each call gets room of the size it is told.
    unsafe {
        if (library.count)(&mut count) == 0 {
            found.extend((0..count.min(MAX_GPUS)).filter_map(|index| gpu(&library, index)));
        }
        (library.shutdown)();
    }
    found
}

/// # Safety
/// The library was started.
unsafe fn gpu(library: &Library, index: c_uint) -> Option<Gpu> {
    let mut device: Device = std::ptr::null_mut();
    let (mut name, mut memory) = ([0 as c_char; NAME_BYTES], Memory::default());
    // SAFETY: as the caller promises; `name` is zero where nothing was written, so it ends.
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

/// Loaded and started. It stays loaded: drivers do not like to be unloaded.
fn open() -> Option<Library> {
    // SAFETY: the symbols are looked up by the names under which the library has had them, with these arguments, for many years.
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
