//! What the engine needs from a GPU driver. Implemented by CUDA ([`super::cuda`]) and, for tests without a GPU, by a simulation
//! (`fake`). Every call but the ones marked as blocking returns without waiting for the device.

use std::ffi::c_void;

use crate::Dtype;
use crate::op::Combine;

/// Address in the memory of a device, or of host memory as the device sees it.
pub type DevicePtr = u64;

/// Queue of work that a device executes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

impl Stream {
    /// All streams of the device's context, for frameworks that do not tell theirs: an event recorded here comes after all work that was
    /// submitted to any stream, and all later work of every stream waits for what waits here. Executes no work.
    pub const CONTEXT: Stream = Stream(u64::MAX);
}

/// Point in a stream that other streams can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Name of an allocation with which another process maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);

/// An allocation of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub base: DevicePtr,
    pub n_bytes: u64,
    /// Never reused, so an allocation that was freed is told from a later one at the same address.
    pub id: u64,
}

/// Memory of the host that the device reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    pub host: *mut u8,
    pub device: DevicePtr,
    pub n_bytes: usize,
}

// SAFETY: an address; the owner synchronises access.
unsafe impl Send for HostMemory {}
unsafe impl Sync for HostMemory {}

/// Kernel launch that executes the tasks of a [`super::tasks::TaskTable`].
#[derive(Clone, Copy, Debug)]
pub struct TaskLaunch {
    pub dtype: Dtype,
    pub combine: Combine,
    /// Factor of every source.
    pub prescale: f64,
    /// Factor of the result.
    pub postscale: f64,
    /// Table in memory that host and device can read.
    pub table: HostMemory,
    /// First word of the table's chunks.
    pub first_chunk: usize,
    pub n_chunks: usize,
    /// Sources of every task, or `None` if tasks differ.
    pub n_sources: Option<usize>,
}

/// Pair of vectors that Adasum combines. Both results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdasumPair {
    pub lower: DevicePtr,
    pub upper: DevicePtr,
    pub n_elements: u64,
}

/// Failed call of the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {text}")]
pub struct DriverError {
    /// Function of the driver or of one of its libraries.
    pub call: &'static str,
    pub code: i32,
    pub text: String,
}

impl DriverError {
    /// CUDA_ERROR_OUT_OF_MEMORY.
    pub const OUT_OF_MEMORY: i32 = 2;

    pub fn is_out_of_memory(&self) -> bool {
        self.code == DriverError::OUT_OF_MEMORY
    }
}

/// Properties of a device that decide how ranks exchange its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    pub name: String,
    /// The same for all processes that use this device, whatever number it has in each.
    pub uuid: [u8; 16],
    /// Streams can write a word of memory.
    pub has_stream_memory_operations: bool,
    /// Events can be recorded and waited for in [`Stream::CONTEXT`].
    pub has_context_events: bool,
    /// Kernels of [`Driver::launch_tasks`] can be compiled; otherwise why not.
    pub kernels: Result<(), String>,
}

/// A device of this process and its driver. All methods may be called from any thread.
///
/// # Safety
/// Methods that take addresses of the host or of the device require that they are valid until the work that uses them is complete.
pub trait Driver: Send + Sync {
    fn properties(&self) -> &DeviceProperties;

    /// Makes the device current on this thread, until the matching [`Driver::leave`].
    fn enter(&self) -> Result<(), DriverError>;
    fn leave(&self);

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DriverError>;
    /// Frees device memory. May block until the device is idle.
    fn free(&self, ptr: DevicePtr);
    /// The allocation that contains an address.
    fn allocation_of(&self, ptr: DevicePtr) -> Result<Allocation, DriverError>;
    /// Id of the allocation that contains an address: cheaper than [`Driver::allocation_of`].
    fn allocation_id(&self, ptr: DevicePtr) -> Result<u64, DriverError>;
    fn export(&self, base: DevicePtr) -> Result<IpcHandle, DriverError>;
    /// Maps an allocation of another process.
    fn import(&self, handle: &IpcHandle) -> Result<DevicePtr, DriverError>;
    fn close_import(&self, ptr: DevicePtr);

    /// Allocates host memory that the device can access and that copies need not stage.
    fn allocate_host(&self, n_bytes: usize) -> Result<HostMemory, DriverError>;
    fn free_host(&self, memory: HostMemory);
    /// Gives the device access to existing host memory, whole pages.
    ///
    /// # Safety
    /// The memory must stay mapped until [`Driver::unregister_host`].
    unsafe fn register_host(&self, host: *mut c_void, n_bytes: usize) -> Result<HostMemory, DriverError>;
    fn unregister_host(&self, memory: HostMemory);

    fn new_stream(&self) -> Result<Stream, DriverError>;
    fn destroy_stream(&self, stream: Stream);
    fn new_event(&self) -> Result<Event, DriverError>;
    fn destroy_event(&self, event: Event);
    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError>;
    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), DriverError>;
    /// True if all work before the last record of the event is complete.
    fn is_complete(&self, event: Event) -> Result<bool, DriverError>;
    /// Blocks until the event is complete.
    fn synchronize(&self, event: Event) -> Result<(), DriverError>;

    /// Stores `value` at `address` when the stream gets there. Everything before it in the stream is visible to whoever sees the value.
    fn write_value(&self, stream: Stream, address: DevicePtr, value: u32) -> Result<(), DriverError>;
    /// Copies to host memory.
    ///
    /// # Safety
    /// Both ranges must be valid until the copy is complete.
    unsafe fn copy_to_host(
        &self,
        stream: Stream,
        dst: *mut u8,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError>;

    /// Copies from host memory.
    ///
    /// # Safety
    /// Both ranges must be valid until the copy is complete.
    unsafe fn copy_to_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: *const u8,
        n_bytes: usize,
    ) -> Result<(), DriverError>;

    /// Copies within device memory.
    ///
    /// # Safety
    /// Both ranges must be valid until the copy is complete, and not overlap.
    unsafe fn copy_on_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError>;

    /// Executes the tasks of a table.
    ///
    /// # Safety
    /// The table must stay unchanged and all addresses in it valid until the tasks are complete.
    unsafe fn launch_tasks(&self, stream: Stream, launch: &TaskLaunch) -> Result<(), DriverError>;

    /// Replaces both vectors of each pair by their adaptive sum. `dots` is device memory for [`ADASUM_SCRATCH_BYTES`] for each pair.
    ///
    /// # Safety
    /// All addresses must be valid until the work is complete.
    unsafe fn launch_adasum(
        &self,
        stream: Stream,
        dtype: Dtype,
        pairs: &[AdasumPair],
        dots: DevicePtr,
    ) -> Result<(), DriverError>;
}

/// Device memory that Adasum needs for each pair: partial dot products of each block.
pub const ADASUM_SCRATCH_BYTES: usize = ADASUM_BLOCKS * 3 * size_of::<f64>();
/// Blocks that compute the dot products of one pair.
pub const ADASUM_BLOCKS: usize = 64;

/// Keeps a device current on this thread.
pub struct Current<'a>(&'a dyn Driver);

impl<'a> Current<'a> {
    pub fn enter(driver: &'a dyn Driver) -> Result<Current<'a>, DriverError> {
        driver.enter()?;
        Ok(Current(driver))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
