//! NVIDIA GPUs by CUDA's driver API. `library` finds the libraries at run time, `api` declares their functions, `kernels` compiles the
//! kernels. Uses the primary context of the device, as the frameworks do, so their addresses and streams are valid here.

pub mod api;
pub mod kernels;
pub mod library;

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use crate::Dtype;
use crate::device::cuda::api::{
    ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR, ATTRIBUTE_STREAM_MEMORY_OPERATIONS, ContextEvents, CuResult, Cuda,
    ERROR_NOT_READY, EVENT_DISABLE_TIMING, HOST_PORTABLE_MAPPED, Handle, IPC_LAZY_PEER_ACCESS, Nvrtc,
    POINTER_BUFFER_ID, POINTER_DEVICE_ORDINAL, STREAM_NON_BLOCKING, SUCCESS,
};
use crate::device::cuda::kernels::{Kernels, Program};
use crate::device::cuda::library::LibraryError;
use crate::device::driver::{
    ADASUM_BLOCKS, AdasumPair, Allocation, DeviceProperties, DevicePtr, Driver, DriverError, Event, HostMemory,
    IpcHandle, Stream, TaskLaunch,
};
use crate::op::Combine;

/// Threads of a block of the kernels that combine, and of Adasum's.
const COMBINE_THREADS: u32 = 512;
const ADASUM_THREADS: u32 = 256;

/// Why a device cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// One GPU.
pub struct CudaDriver {
    api: Cuda,
    context_events: Option<ContextEvents>,
    device: c_int,
    context: Handle,
    kernels: Option<Kernels>,
    properties: DeviceProperties,
    /// Streams of a higher priority are executed first.
    priority: c_int,
}

// SAFETY: the driver's functions may be called from any thread, and handles be used by any.
unsafe impl Send for CudaDriver {}
unsafe impl Sync for CudaDriver {}

/// Calls a function of the driver and turns its result into an error that names it.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are valid handles, and addresses of locals or as the function's contract says.
        $driver.check($driver.$function.name, unsafe { ($driver.$function.call)($($argument),*) })
    };
}

impl Cuda {
    fn check(&self, call: &'static str, code: CuResult) -> Result<(), DriverError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    fn error(&self, call: &'static str, code: CuResult) -> DriverError {
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        // SAFETY: the driver stores the address of a static string, or leaves null for an unknown code.
        let texts = unsafe {
            (self.error_name.call)(code, &raw mut name);
            (self.error_string.call)(code, &raw mut text);
            [name, text].map(|at| if at.is_null() { "unknown".into() } else { CStr::from_ptr(at).to_string_lossy() })
        };
        DriverError { call, code, text: format!("{} ({})", texts[1], texts[0]) }
    }
}

impl CudaDriver {
    /// Opens the device with this number, as frameworks count them.
    pub fn open(ordinal: i32) -> Result<CudaDriver, OpenError> {
        let api = Cuda::open()?;
        call!(api, init(0))?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        call!(api, device_get(&raw mut device, ordinal))?;
        let mut name = [0; 256];
        call!(api, device_name(name.as_mut_ptr(), name.len() as c_int, device))?;
        // SAFETY: the driver ends the name with a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut uuid = [0; 16];
        call!(api, device_uuid(&raw mut uuid, device))?;
        let attribute = |attribute| {
            let mut value = 0;
            call!(api, device_attribute(&raw mut value, attribute, device)).map(|()| value)
        };
        let (major, minor) = (attribute(ATTRIBUTE_MAJOR)?, attribute(ATTRIBUTE_MINOR)?);
        let has_stream_memory_operations = attribute(ATTRIBUTE_STREAM_MEMORY_OPERATIONS).is_ok_and(|value| value != 0);
        call!(api, primary_retain(&raw mut context, device))?;
        let (kernels, outcome) = match Nvrtc::open() {
            Ok(compiler) => (Some(Kernels::new(compiler, major, minor)), Ok(())),
            Err(error) => (None, Err(error.to_string())),
        };
        let context_events = ContextEvents::open().ok();
        let has_context_events = context_events.is_some();
        let properties =
            DeviceProperties { name, uuid, has_stream_memory_operations, has_context_events, kernels: outcome };
        let mut driver = CudaDriver { api, context_events, device, context, kernels, properties, priority: 0 };
        driver.enter()?;
        let (mut least, mut greatest) = (0, 0);
        if call!(driver.api, priority_range(&raw mut least, &raw mut greatest)).is_ok() {
            driver.priority = greatest;
        }
        driver.leave();
        Ok(driver)
    }

    fn context_events(&self, call: &'static str) -> Result<&ContextEvents, DriverError> {
        let text = "the driver has no such function: it is older than CUDA 12.5";
        self.context_events.as_ref().ok_or_else(|| DriverError { call, code: -1, text: text.to_owned() })
    }

    fn program(&self, dtype: Dtype, combine: Combine) -> Result<Program, DriverError> {
        let missing = || DriverError {
            call: "nvrtcCompileProgram",
            code: -1,
            text: self.properties.kernels.clone().err().unwrap_or_default(),
        };
        let kernels = self.kernels.as_ref().ok_or_else(missing)?;
        kernels.program(dtype, combine, |image, names| {
            let mut module = std::ptr::null_mut();
            call!(self.api, module_load(&raw mut module, image.as_ptr().cast()))?;
            names
                .iter()
                .map(|name| {
                    let name = CString::new(*name).expect("a name without zero bytes");
                    let mut function = std::ptr::null_mut();
                    call!(self.api, module_function(&raw mut function, module, name.as_ptr())).map(|()| function)
                })
                .collect()
        })
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, and their addresses valid until it is complete.
    unsafe fn launch(
        &self,
        function: Handle,
        stream: Stream,
        n_blocks: usize,
        n_threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let (n_blocks, none) = (n_blocks as u32, std::ptr::null_mut());
        call!(
            self.api,
            launch(function, n_blocks, 1, 1, n_threads, 1, 1, 0, handle(stream.0), arguments.as_mut_ptr(), none)
        )
    }
}

/// Number of the device that owns an address of device memory.
pub fn device_of(ptr: DevicePtr) -> Result<i32, OpenError> {
    static API: OnceLock<Result<Cuda, LibraryError>> = OnceLock::new();
    let api = API.get_or_init(Cuda::open).as_ref().map_err(Clone::clone)?;
    let mut ordinal: c_int = 0;
    call!(api, pointer_attribute((&raw mut ordinal).cast(), POINTER_DEVICE_ORDINAL, ptr))?;
    Ok(ordinal)
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        let _ = call!(self.api, primary_release(self.device));
    }
}

/// A stream or event as the driver's pointer.
fn handle(number: u64) -> Handle {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

fn number(handle: Handle) -> u64 {
    handle.expose_provenance() as u64
}

impl Driver for CudaDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn enter(&self) -> Result<(), DriverError> {
        call!(self.api, push_current(self.context))
    }

    fn leave(&self) {
        let mut context = std::ptr::null_mut();
        let _ = call!(self.api, pop_current(&raw mut context));
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DriverError> {
        let mut ptr = 0;
        call!(self.api, alloc(&raw mut ptr, n_bytes)).map(|()| ptr)
    }

    fn free(&self, ptr: DevicePtr) {
        let _ = call!(self.api, free(ptr));
    }

    fn allocation_of(&self, ptr: DevicePtr) -> Result<Allocation, DriverError> {
        let (mut base, mut n_bytes) = (0, 0);
        call!(self.api, address_range(&raw mut base, &raw mut n_bytes, ptr))?;
        Ok(Allocation { base, n_bytes: n_bytes as u64, id: self.allocation_id(ptr)? })
    }

    fn allocation_id(&self, ptr: DevicePtr) -> Result<u64, DriverError> {
        let mut id = 0u64;
        call!(self.api, pointer_attribute((&raw mut id).cast(), POINTER_BUFFER_ID, ptr)).map(|()| id)
    }

    fn export(&self, base: DevicePtr) -> Result<IpcHandle, DriverError> {
        let mut bytes = [0; 64];
        call!(self.api, ipc_get(&raw mut bytes, base)).map(|()| IpcHandle(bytes))
    }

    fn import(&self, handle: &IpcHandle) -> Result<DevicePtr, DriverError> {
        let mut ptr = 0;
        call!(self.api, ipc_open(&raw mut ptr, handle.0, IPC_LAZY_PEER_ACCESS)).map(|()| ptr)
    }

    fn close_import(&self, ptr: DevicePtr) {
        let _ = call!(self.api, ipc_close(ptr));
    }

    fn allocate_host(&self, n_bytes: usize) -> Result<HostMemory, DriverError> {
        let (mut host, mut device) = (std::ptr::null_mut(), 0);
        call!(self.api, host_alloc(&raw mut host, n_bytes, HOST_PORTABLE_MAPPED))?;
        call!(self.api, host_device_pointer(&raw mut device, host, 0))?;
        Ok(HostMemory { host: host.cast(), device, n_bytes })
    }

    fn free_host(&self, memory: HostMemory) {
        let _ = call!(self.api, host_free(memory.host.cast()));
    }

    unsafe fn register_host(&self, host: *mut c_void, n_bytes: usize) -> Result<HostMemory, DriverError> {
        let mut device = 0;
        call!(self.api, host_register(host, n_bytes, HOST_PORTABLE_MAPPED))?;
        call!(self.api, host_device_pointer(&raw mut device, host, 0))?;
        Ok(HostMemory { host: host.cast(), device, n_bytes })
    }

    fn unregister_host(&self, memory: HostMemory) {
        let _ = call!(self.api, host_unregister(memory.host.cast()));
    }

    fn new_stream(&self) -> Result<Stream, DriverError> {
        let mut stream = std::ptr::null_mut();
        call!(self.api, stream_create(&raw mut stream, STREAM_NON_BLOCKING, self.priority))?;
        Ok(Stream(number(stream)))
    }

    fn destroy_stream(&self, stream: Stream) {
        let _ = call!(self.api, stream_destroy(handle(stream.0)));
    }

    fn new_event(&self) -> Result<Event, DriverError> {
        let mut event = std::ptr::null_mut();
        call!(self.api, event_create(&raw mut event, EVENT_DISABLE_TIMING)).map(|()| Event(number(event)))
    }

    fn destroy_event(&self, event: Event) {
        let _ = call!(self.api, event_destroy(handle(event.0)));
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        if stream == Stream::CONTEXT {
            let events = self.context_events("cuCtxRecordEvent")?;
            // SAFETY: the context and an event of this driver.
            let code = unsafe { (events.record.call)(self.context, handle(event.0)) };
            return self.api.check(events.record.name, code);
        }
        call!(self.api, event_record(handle(event.0), handle(stream.0)))
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        if stream == Stream::CONTEXT {
            let events = self.context_events("cuCtxWaitEvent")?;
            // SAFETY: the context and an event of this driver.
            let code = unsafe { (events.wait.call)(self.context, handle(event.0)) };
            return self.api.check(events.wait.name, code);
        }
        call!(self.api, stream_wait_event(handle(stream.0), handle(event.0), 0))
    }

    fn is_complete(&self, event: Event) -> Result<bool, DriverError> {
        // SAFETY: an event of this driver.
        match unsafe { (self.api.event_query.call)(handle(event.0)) } {
            ERROR_NOT_READY => Ok(false),
            code => self.api.check(self.api.event_query.name, code).map(|()| true),
        }
    }

    fn synchronize(&self, event: Event) -> Result<(), DriverError> {
        call!(self.api, event_synchronize(handle(event.0)))
    }

    fn write_value(&self, stream: Stream, address: DevicePtr, value: u32) -> Result<(), DriverError> {
        call!(self.api, stream_write_value(handle(stream.0), address, value, 0))
    }

    unsafe fn copy_to_host(
        &self,
        stream: Stream,
        dst: *mut u8,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        call!(self.api, copy_to_host(dst.cast(), src, n_bytes, handle(stream.0)))
    }

    unsafe fn copy_to_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: *const u8,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        call!(self.api, copy_to_device(dst, src.cast(), n_bytes, handle(stream.0)))
    }

    unsafe fn copy_on_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        call!(self.api, copy_on_device(dst, src, n_bytes, handle(stream.0)))
    }

    unsafe fn launch_tasks(&self, stream: Stream, launch: &TaskLaunch) -> Result<(), DriverError> {
        let program = self.program(launch.dtype, launch.combine)?;
        let (mut table, mut first_chunk) = (launch.table.device, launch.first_chunk as u32);
        let (mut prescale, mut postscale) = (launch.prescale, launch.postscale);
        let mut arguments = [
            (&raw mut table).cast(),
            (&raw mut first_chunk).cast(),
            (&raw mut prescale).cast(),
            (&raw mut postscale).cast(),
        ];
        let function = program.combine(launch.n_sources);
        // SAFETY: the parameters of `combine_*` in the source; the table is valid by the function's contract.
        unsafe { self.launch(function, stream, launch.n_chunks, COMBINE_THREADS, &mut arguments) }
    }

    unsafe fn launch_adasum(
        &self,
        stream: Stream,
        dtype: Dtype,
        pairs: &[AdasumPair],
        dots: DevicePtr,
    ) -> Result<(), DriverError> {
        let program = self.program(dtype, Combine::Sum)?;
        let (dots_kernel, combine_kernel) = program.adasum.expect("Adasum is for floating-point types");
        for (index, pair) in pairs.iter().enumerate() {
            let (mut lower, mut upper, mut n_elements) = (pair.lower, pair.upper, pair.n_elements);
            let mut partials = dots + (index * crate::device::driver::ADASUM_SCRATCH_BYTES) as u64;
            let mut n_partials = ADASUM_BLOCKS as u32;
            let mut arguments = [
                (&raw mut lower).cast(),
                (&raw mut upper).cast(),
                (&raw mut n_elements).cast(),
                (&raw mut partials).cast(),
                (&raw mut n_partials).cast(),
            ];
            // SAFETY: the parameters of the two kernels in the source, of which the first has one less; addresses are valid by the
            // function's contract.
            unsafe {
                self.launch(dots_kernel, stream, ADASUM_BLOCKS, ADASUM_THREADS, &mut arguments[..4])?;
                let n_blocks = (pair.n_elements as usize).div_ceil(ADASUM_THREADS as usize * 8).clamp(1, 1024);
                self.launch(combine_kernel, stream, n_blocks, ADASUM_THREADS, &mut arguments)?;
            }
        }
        Ok(())
    }
}
