//! The functions of the CUDA driver that the tests need, and the test of the driver: memory is allocated on every GPU, written and read back.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::ptr;

use super::library::{self, Loaded};

const LIBRARY: &str = "libcuda.so.1";
/// GPUs that are tested, at most.
const MAX_DEVICES: c_int = 16;
/// Size of the buffers that are copied.
pub const TEST_BYTES: usize = 1 << 20;
/// The result of enabling what is enabled already.
const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// Open the memory of another process, with access from other GPUs when that is needed.
const IPC_LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

pub type DevicePtr = u64;

/// `CUcontext`: a pointer that only the driver follows.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Context(*mut c_void);

/// `CUipcMemHandle`: opaque bytes that name memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);

/// A GPU with a context of this process.
#[derive(Clone, Debug)]
pub struct Device {
    pub ordinal: c_int,
    number: c_int,
    pub name: String,
    pub context: Context,
}

type Result3<A, B, C> = unsafe extern "C" fn(A, B, C) -> c_int;
type Result2<A, B> = unsafe extern "C" fn(A, B) -> c_int;
type Result1<A> = unsafe extern "C" fn(A) -> c_int;

/// The loaded driver. Never unloaded: it starts threads.
pub struct Driver {
    version: Result1<*mut c_int>,
    device_count: Result1<*mut c_int>,
    device_get: Result2<*mut c_int, c_int>,
    device_name: Result3<*mut c_char, c_int, c_int>,
    retain_context: Result2<*mut Context, c_int>,
    set_context: Result1<Context>,
    alloc: Result2<*mut DevicePtr, usize>,
    free: Result1<DevicePtr>,
    copy_to_device: Result3<DevicePtr, *const c_void, usize>,
    copy_to_host: Result3<*mut c_void, DevicePtr, usize>,
    copy_peer: unsafe extern "C" fn(DevicePtr, Context, DevicePtr, Context, usize) -> c_int,
    can_access_peer: Result3<*mut c_int, c_int, c_int>,
    enable_peer_access: Result2<Context, c_uint>,
    ipc_get_handle: Result2<*mut IpcHandle, DevicePtr>,
    ipc_open_handle: Result3<*mut DevicePtr, IpcHandle, c_uint>,
    ipc_close_handle: Result1<DevicePtr>,
    error_name: Result2<c_int, *mut *const c_char>,
}

impl Driver {
    /// Loads and initializes the driver.
    pub fn open() -> Result<Driver, String> {
        let Loaded { library, .. } = library::load(&[LIBRARY], LIBRARY, &[])?;
        // Leaked, so that it stays loaded as long as this process lives.
        let library = Box::leak(Box::new(library));
        // SAFETY: the types are those of `cuda.h`, in which these functions have not changed since CUDA 11.
        let (init, driver): (Result1<c_uint>, Driver) = unsafe {
            let driver = Driver {
                version: library::function(library, "cuDriverGetVersion")?,
                device_count: library::function(library, "cuDeviceGetCount")?,
                device_get: library::function(library, "cuDeviceGet")?,
                device_name: library::function(library, "cuDeviceGetName")?,
                retain_context: library::function(library, "cuDevicePrimaryCtxRetain")?,
                set_context: library::function(library, "cuCtxSetCurrent")?,
                alloc: library::function(library, "cuMemAlloc_v2")?,
                free: library::function(library, "cuMemFree_v2")?,
                copy_to_device: library::function(library, "cuMemcpyHtoD_v2")?,
                copy_to_host: library::function(library, "cuMemcpyDtoH_v2")?,
                copy_peer: library::function(library, "cuMemcpyPeer")?,
                can_access_peer: library::function(library, "cuDeviceCanAccessPeer")?,
                enable_peer_access: library::function(library, "cuCtxEnablePeerAccess")?,
                ipc_get_handle: library::function(library, "cuIpcGetMemHandle")?,
                ipc_open_handle: library::function(library, "cuIpcOpenMemHandle_v2")?,
                ipc_close_handle: library::function(library, "cuIpcCloseMemHandle")?,
                error_name: library::function(library, "cuGetErrorName")?,
            };
            (library::function(library, "cuInit")?, driver)
        };
        // SAFETY: it takes flags, of which there are none.
        driver.check("cuInit", unsafe { init(0) })?;
        Ok(driver)
    }

    fn check(&self, action: &str, code: c_int) -> Result<(), String> {
        library::check(action, code, |code| {
            let mut name: *const c_char = ptr::null();
            // SAFETY: `name` can be written; the name that the driver returns is a C string of its own that is never freed.
            match unsafe { (self.error_name)(code, &mut name) } {
                0 if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
                _ => format!("error {code}"),
            }
        })
    }

    /// Version of CUDA that the driver supports: `13.0`.
    fn cuda_version(&self) -> Result<String, String> {
        let mut version = 0;
        // SAFETY: `version` can be written.
        self.check("cuDriverGetVersion", unsafe { (self.version)(&mut version) })?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// All GPUs, each with a context. An error if there is none.
    pub fn devices(&self) -> Result<Vec<Device>, String> {
        let mut count = 0;
        // SAFETY: `count` can be written.
        self.check("cuDeviceGetCount", unsafe { (self.device_count)(&mut count) })?;
        if count < 1 {
            return Err("the driver finds no GPU".to_owned());
        }
        (0..count.min(MAX_DEVICES)).map(|ordinal| self.device(ordinal)).collect()
    }

    pub fn device(&self, ordinal: c_int) -> Result<Device, String> {
        let (mut number, mut name, mut context) = (0, [0; 128], Context(ptr::null_mut()));
        // SAFETY: `number` and `context` can be written, and `name` up to the length that is given, of which the driver writes a C string.
        let name = unsafe {
            self.check("cuDeviceGet", (self.device_get)(&mut number, ordinal))?;
            self.check("cuDeviceGetName", (self.device_name)(name.as_mut_ptr(), name.len() as c_int, number))?;
            self.check("creating a context", (self.retain_context)(&mut context, number))?;
            name[name.len() - 1] = 0;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        Ok(Device { ordinal, number, name, context })
    }

    /// Makes the device that of the following calls.
    pub fn select(&self, device: &Device) -> Result<(), String> {
        // SAFETY: the context is one that the driver returned, and is never released.
        self.check("selecting the GPU", unsafe { (self.set_context)(device.context) })
    }

    /// Memory of the selected GPU, freed on drop.
    pub fn alloc(&self) -> Result<Buffer<'_>, String> {
        let mut address = 0;
        // SAFETY: `address` can be written.
        self.check("allocating memory", unsafe { (self.alloc)(&mut address, TEST_BYTES) })?;
        Ok(Buffer { driver: self, address })
    }

    pub fn can_access_peer(&self, device: &Device, peer: &Device) -> Result<bool, String> {
        let mut can_access = 0;
        // SAFETY: `can_access` can be written, and both numbers are those of devices.
        let code = unsafe { (self.can_access_peer)(&mut can_access, device.number, peer.number) };
        self.check("cuDeviceCanAccessPeer", code)?;
        Ok(can_access != 0)
    }

    /// Lets the selected GPU access memory of `peer`.
    pub fn enable_peer_access(&self, peer: &Device) -> Result<(), String> {
        // SAFETY: the context is one that the driver returned, and is never released.
        match unsafe { (self.enable_peer_access)(peer.context, 0) } {
            PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("enabling peer access", code),
        }
    }

    /// Opens memory of another process, closed on drop.
    pub fn open_ipc(&self, handle: IpcHandle) -> Result<ForeignBuffer<'_>, String> {
        let mut address = 0;
        // SAFETY: `address` can be written, and the handle is passed by value, as the driver's function takes it.
        let code = unsafe { (self.ipc_open_handle)(&mut address, handle, IPC_LAZY_ENABLE_PEER_ACCESS) };
        self.check("opening the memory of another process", code)?;
        Ok(ForeignBuffer { driver: self, address })
    }

    pub fn write(&self, address: DevicePtr, bytes: &[u8; TEST_BYTES]) -> Result<(), String> {
        // SAFETY: `address` is that of a buffer, all of which have this size, and `bytes` can be read.
        self.check("copying to the GPU", unsafe { (self.copy_to_device)(address, bytes.as_ptr().cast(), TEST_BYTES) })
    }

    pub fn read(&self, address: DevicePtr) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0_u8; TEST_BYTES];
        // SAFETY: `address` is that of a buffer, all of which have this size, as `bytes` has, which can be written.
        self.check("copying from the GPU", unsafe {
            (self.copy_to_host)(bytes.as_mut_ptr().cast(), address, TEST_BYTES)
        })?;
        Ok(bytes)
    }

    /// Copies a buffer to that of another GPU.
    pub fn copy_peer(&self, to: (&Buffer<'_>, &Device), from: (&Buffer<'_>, &Device)) -> Result<(), String> {
        // SAFETY: both buffers have this size and belong to the devices with these contexts, which are never released.
        let code = unsafe { (self.copy_peer)(to.0.address, to.1.context, from.0.address, from.1.context, TEST_BYTES) };
        self.check("copying between the GPUs", code)
    }
}

/// Memory of a GPU of [`TEST_BYTES`].
pub struct Buffer<'a> {
    driver: &'a Driver,
    pub address: DevicePtr,
}

impl Buffer<'_> {
    pub fn ipc_handle(&self) -> Result<IpcHandle, String> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: `handle` can be written, and the address is that of a whole allocation.
        let code = unsafe { (self.driver.ipc_get_handle)(&mut handle, self.address) };
        self.driver.check("naming memory for another process", code)?;
        Ok(handle)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: it was allocated by this driver and is freed once. A failure leaves it to the end of the process.
        let _ = unsafe { (self.driver.free)(self.address) };
    }
}

/// Memory of another process, of [`TEST_BYTES`].
pub struct ForeignBuffer<'a> {
    driver: &'a Driver,
    pub address: DevicePtr,
}

impl Drop for ForeignBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: it was opened by this driver and is closed once. A failure leaves it to the end of the process.
        let _ = unsafe { (self.driver.ipc_close_handle)(self.address) };
    }
}

/// Bytes that no memory contains by chance.
pub fn pattern(seed: u8) -> Box<[u8; TEST_BYTES]> {
    let bytes: Vec<u8> = (0..TEST_BYTES).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ seed).collect();
    bytes.into_boxed_slice().try_into().expect("of this size")
}

/// Allocates memory on each GPU, writes it and reads it back. Describes driver and GPUs.
pub fn test_memory(driver: &Driver, devices: &[Device]) -> Result<String, String> {
    for (device, seed) in devices.iter().zip(1..) {
        let of_device = |error: String| format!("GPU {} ({}): {error}", device.ordinal, device.name);
        driver.select(device).map_err(of_device)?;
        let (buffer, expected) = (driver.alloc().map_err(of_device)?, pattern(seed));
        driver.write(buffer.address, &expected).map_err(of_device)?;
        if driver.read(buffer.address).map_err(of_device)? != *expected {
            return Err(of_device("its memory returns other bytes than were written".to_owned()));
        }
    }
    let version = fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    let version = if version.trim().is_empty() { String::new() } else { format!("{}, ", version.trim()) };
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let gpus = match names.as_slice() {
        [name] => format!("1 GPU ({name})"),
        [first, ..] if names.iter().all(|name| name == first) => format!("{} GPUs ({first})", names.len()),
        names => format!("{} GPUs ({})", names.len(), names.join(", ")),
    };
    Ok(format!("{version}CUDA {}, {gpus}; memory was allocated and copied on each", driver.cuda_version()?))
}
