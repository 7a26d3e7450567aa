//! Functions of CUDA's driver and of NVRTC, its compiler, with the types of their headers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::device::cuda::library::{LibraryError, functions, open};

pub type CuResult = c_int;
pub type Handle = *mut c_void;

functions! {
    /// The driver.
    Cuda of "libcuda.so.1" {
        init = "cuInit" (c_uint) -> CuResult;
        error_name = "cuGetErrorName" (CuResult, *mut *const c_char) -> CuResult;
        error_string = "cuGetErrorString" (CuResult, *mut *const c_char) -> CuResult;
        device_get = "cuDeviceGet" (*mut c_int, c_int) -> CuResult;
        device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int) -> CuResult;
        device_uuid = "cuDeviceGetUuid" (*mut [u8; 16], c_int) -> CuResult;
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int) -> CuResult;
        primary_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int) -> CuResult;
        primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int) -> CuResult;
        push_current = "cuCtxPushCurrent_v2" (Handle) -> CuResult;
        pop_current = "cuCtxPopCurrent_v2" (*mut Handle) -> CuResult;
        priority_range = "cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int) -> CuResult;
        stream_create = "cuStreamCreateWithPriority" (*mut Handle, c_uint, c_int) -> CuResult;
        stream_destroy = "cuStreamDestroy_v2" (Handle) -> CuResult;
        stream_wait_event = "cuStreamWaitEvent" (Handle, Handle, c_uint) -> CuResult;
        stream_write_value = "cuStreamWriteValue32_v2" (Handle, u64, u32, c_uint) -> CuResult;
        event_create = "cuEventCreate" (*mut Handle, c_uint) -> CuResult;
        event_destroy = "cuEventDestroy_v2" (Handle) -> CuResult;
        event_record = "cuEventRecord" (Handle, Handle) -> CuResult;
        event_query = "cuEventQuery" (Handle) -> CuResult;
        event_synchronize = "cuEventSynchronize" (Handle) -> CuResult;
        alloc = "cuMemAlloc_v2" (*mut u64, usize) -> CuResult;
        free = "cuMemFree_v2" (u64) -> CuResult;
        address_range = "cuMemGetAddressRange_v2" (*mut u64, *mut usize, u64) -> CuResult;
        pointer_attribute = "cuPointerGetAttribute" (*mut c_void, c_int, u64) -> CuResult;
        ipc_get = "cuIpcGetMemHandle" (*mut [u8; 64], u64) -> CuResult;
        ipc_open = "cuIpcOpenMemHandle_v2" (*mut u64, [u8; 64], c_uint) -> CuResult;
        ipc_close = "cuIpcCloseMemHandle" (u64) -> CuResult;
        host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint) -> CuResult;
        host_free = "cuMemFreeHost" (*mut c_void) -> CuResult;
        host_register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint) -> CuResult;
        host_unregister = "cuMemHostUnregister" (*mut c_void) -> CuResult;
        host_device_pointer = "cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint) -> CuResult;
        copy_to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Handle) -> CuResult;
        copy_to_device = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle) -> CuResult;
        copy_on_device = "cuMemcpyDtoDAsync_v2" (u64, u64, usize, Handle) -> CuResult;
        module_load = "cuModuleLoadData" (*mut Handle, *const c_void) -> CuResult;
        module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char) -> CuResult;
        launch = "cuLaunchKernel"
            (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void) -> CuResult;
    }
}

impl Cuda {
    pub fn open() -> Result<Cuda, LibraryError> {
        Cuda::from_library(open("the CUDA driver (libcuda.so.1)", &["libcuda.so.1"])?)
    }
}

functions! {
    /// Events of all streams of a context: drivers of CUDA 12.5 and later.
    ContextEvents of "libcuda.so.1" {
        record = "cuCtxRecordEvent" (Handle, Handle) -> CuResult;
        wait = "cuCtxWaitEvent" (Handle, Handle) -> CuResult;
    }
}

impl ContextEvents {
    pub fn open() -> Result<ContextEvents, LibraryError> {
        ContextEvents::from_library(open("the CUDA driver (libcuda.so.1)", &["libcuda.so.1"])?)
    }
}

functions! {
    /// The compiler of kernels.
    Nvrtc of "libnvrtc" {
        create = "nvrtcCreateProgram"
            (*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> CuResult;
        destroy = "nvrtcDestroyProgram" (*mut Handle) -> CuResult;
        compile = "nvrtcCompileProgram" (Handle, c_int, *const *const c_char) -> CuResult;
        log_size = "nvrtcGetProgramLogSize" (Handle, *mut usize) -> CuResult;
        log = "nvrtcGetProgramLog" (Handle, *mut c_char) -> CuResult;
        cubin_size = "nvrtcGetCUBINSize" (Handle, *mut usize) -> CuResult;
        cubin = "nvrtcGetCUBIN" (Handle, *mut c_char) -> CuResult;
    }
}

impl Nvrtc {
    pub fn open() -> Result<Nvrtc, LibraryError> {
        let names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
        Nvrtc::from_library(open("CUDA's compiler library (libnvrtc.so)", &names)?)
    }
}

pub const SUCCESS: CuResult = 0;
pub const ERROR_NOT_READY: CuResult = 600;
pub const STREAM_NON_BLOCKING: c_uint = 1;
pub const EVENT_DISABLE_TIMING: c_uint = 2;
pub const IPC_LAZY_PEER_ACCESS: c_uint = 1;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`, and the same for registration.
pub const HOST_PORTABLE_MAPPED: c_uint = 3;
pub const POINTER_BUFFER_ID: c_int = 7;
pub const POINTER_DEVICE_ORDINAL: c_int = 9;
pub const ATTRIBUTE_MAJOR: c_int = 75;
pub const ATTRIBUTE_MINOR: c_int = 76;
/// `CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS`: devices that have the functions with the suffix `_v2` say so by it; those for 32 bits
/// have no attribute of their own.
pub const ATTRIBUTE_STREAM_MEMORY_OPERATIONS: c_int = 122;
