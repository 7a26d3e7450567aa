//! The device of a rank: its driver, the stream of the engine, and pools of events, device memory and task tables. Frameworks and the engine
//! order their work by events; no thread waits for the device here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::device::cuda::{CudaDriver, OpenError};
use crate::device::driver::{Current, DevicePtr, Driver, DriverError, Event, HostMemory, Stream, TaskLaunch};
use crate::device::tasks::TaskTable;
use crate::dtype::Dtype;
use crate::op::Combine;

/// A device that this process uses. Lives as long as the process, as the frameworks' contexts do: events and memory refer to it.
pub struct DeviceContext {
    pub driver: Arc<dyn Driver>,
    /// Number of the device in this process.
    pub ordinal: i32,
    /// The engine's stream, in which it executes all operations in order.
    pub stream: Stream,
    /// Stream that orders what other ranks of this GPU wait for. An operation in it never waits for the one before it to be executed.
    pub ready_stream: Stream,
    /// Stream of copies to memory of a framework, made by the first.
    copy_stream: OnceLock<Result<Stream, DriverError>>,
    events: Mutex<Vec<Event>>,
    tables: Mutex<Vec<TableBuffer>>,
    free_blocks: Mutex<Vec<FreeBlock>>,
    /// Position in the stream: number of events that were recorded in it.
    position: AtomicU64,
}

/// Memory for a task table, and the event after which it may be written again.
struct TableBuffer {
    memory: HostMemory,
    in_use: Arc<DeviceEvent>,
}

/// Device memory that was used before, and the event after which it may be used again.
struct FreeBlock {
    ptr: DevicePtr,
    n_bytes: usize,
    in_use: Option<Arc<DeviceEvent>>,
}

/// Most bytes of device memory that are kept for later operations.
const MAX_FREE_BYTES: usize = 512 << 20;
/// Smallest size of a task table's memory.
const MIN_TABLE_BYTES: usize = 64 * 1024;

impl DeviceContext {
    /// The GPU with this number, opened at the first call.
    pub fn open(ordinal: i32) -> Result<Arc<DeviceContext>, OpenError> {
        static OPENED: Mutex<Vec<Arc<DeviceContext>>> = Mutex::new(Vec::new());
        let mut opened = lock(&OPENED);
        if let Some(context) = opened.iter().find(|context| context.ordinal == ordinal) {
            return Ok(context.clone());
        }
        let driver = CudaDriver::open(ordinal)?;
        let context = DeviceContext::with_driver(Arc::new(driver), ordinal)?;
        opened.push(context.clone());
        Ok(context)
    }

    pub fn with_driver(driver: Arc<dyn Driver>, ordinal: i32) -> Result<Arc<DeviceContext>, DriverError> {
        let (stream, ready_stream) = {
            let _current = Current::enter(&*driver)?;
            (driver.new_stream()?, driver.new_stream()?)
        };
        Ok(Arc::new(DeviceContext {
            driver,
            ordinal,
            stream,
            ready_stream,
            copy_stream: OnceLock::new(),
            events: Mutex::default(),
            tables: Mutex::default(),
            free_blocks: Mutex::default(),
            position: AtomicU64::new(0),
        }))
    }

    /// Event after all work that was submitted to a stream so far. For the engine's stream, positions ascend.
    pub fn record(self: &Arc<Self>, stream: Stream) -> Result<Arc<DeviceEvent>, DriverError> {
        let _current = Current::enter(&*self.driver)?;
        let event = match lock(&self.events).pop() {
            Some(event) => event,
            None => self.driver.new_event()?,
        };
        let position = self.position.fetch_add(1, Ordering::Relaxed);
        let recorded = Arc::new(DeviceEvent { event, stream, position, context: self.clone() });
        self.driver.record(event, stream)?;
        Ok(recorded)
    }

    /// Makes later work in a stream wait for events. Of several events of one stream only the last is waited for.
    pub fn wait_all<'a>(
        &self,
        stream: Stream,
        events: impl IntoIterator<Item = &'a Arc<DeviceEvent>>,
    ) -> Result<(), DriverError> {
        let mut last: Vec<&Arc<DeviceEvent>> = Vec::new();
        for event in events {
            match last.iter_mut().find(|known| known.stream == event.stream) {
                Some(known) if known.position < event.position => *known = event,
                Some(_) => {}
                None => last.push(event),
            }
        }
        last.into_iter().try_for_each(|event| self.wait(stream, event))
    }

    /// Makes later work in a stream wait for an event. Does not block.
    pub fn wait(&self, stream: Stream, event: &DeviceEvent) -> Result<(), DriverError> {
        let _current = Current::enter(&*self.driver)?;
        self.driver.wait_event(stream, event.event)
    }

    /// Executes a task table in a stream.
    ///
    /// # Safety
    /// The addresses in the table must be valid until the tasks are complete.
    pub unsafe fn launch(
        self: &Arc<Self>,
        stream: Stream,
        table: &TaskTable,
        dtype: Dtype,
        combine: Combine,
        prescale: f64,
        postscale: f64,
    ) -> Result<(), DriverError> {
        if table.is_empty() {
            return Ok(());
        }
        let memory = self.table_memory(table.n_bytes())?;
        let launch = TaskLaunch {
            dtype,
            combine,
            prescale,
            postscale,
            table: memory,
            first_chunk: table.first_chunk(),
            n_chunks: table.n_chunks(),
            n_sources: table.n_sources(),
        };
        // SAFETY: the memory has the table's size, is aligned to pages, and no launch uses it any more. The addresses are valid by the
        // function's contract.
        unsafe {
            table.write(memory.host.cast());
            self.driver.launch_tasks(stream, &launch)?;
        }
        let in_use = self.record(stream)?;
        lock(&self.tables).push(TableBuffer { memory, in_use });
        Ok(())
    }

    fn table_memory(&self, n_bytes: usize) -> Result<HostMemory, DriverError> {
        {
            let mut tables = lock(&self.tables);
            let is_free =
                |buffer: &TableBuffer| buffer.memory.n_bytes >= n_bytes && buffer.in_use.is_complete().unwrap_or(false);
            if let Some(index) = tables.iter().position(is_free) {
                return Ok(tables.swap_remove(index).memory);
            }
        }
        self.driver.allocate_host(n_bytes.next_power_of_two().max(MIN_TABLE_BYTES))
    }

    /// Device memory that the engine owns, for use in its two streams.
    pub fn allocate(self: &Arc<Self>, n_bytes: usize) -> Result<DeviceMemory, DriverError> {
        let n_bytes = block_bytes(n_bytes);
        let reused = {
            let mut blocks = lock(&self.free_blocks);
            let fits = |block: &FreeBlock| block.n_bytes >= n_bytes && block.n_bytes <= n_bytes + n_bytes / 4;
            blocks.iter().position(fits).map(|index| blocks.swap_remove(index))
        };
        let (ptr, n_bytes) = match reused {
            Some(block) => {
                if let Some(in_use) = &block.in_use {
                    self.driver.wait_event(self.stream, in_use.event)?;
                    // Other ranks may write it once they see that this one is ready.
                    self.driver.wait_event(self.ready_stream, in_use.event)?;
                }
                (block.ptr, block.n_bytes)
            }
            None => match self.driver.allocate(n_bytes) {
                Err(error) if error.is_out_of_memory() && self.free_unused(0) => {
                    (self.driver.allocate(n_bytes)?, n_bytes)
                }
                ptr => (ptr?, n_bytes),
            },
        };
        Ok(DeviceMemory { ptr, n_bytes, user: AtomicU64::new(self.stream.0), context: self.clone() })
    }

    /// Copies a result that is there after `done` to memory that is used in `user`, and makes later work there wait for the copy. Does not
    /// block.
    ///
    /// # Safety
    /// `dst` must be valid for `n_bytes`, at most the size of the result, until the copy is complete, and earlier work that uses it be in
    /// `user`.
    pub unsafe fn copy_result(
        self: &Arc<Self>,
        memory: &DeviceMemory,
        done: &Arc<DeviceEvent>,
        dst: DevicePtr,
        n_bytes: usize,
        user: Stream,
    ) -> Result<(), DriverError> {
        let stream = {
            let _current = Current::enter(&*self.driver)?;
            self.copy_stream.get_or_init(|| self.driver.new_stream()).clone()?
        };
        self.wait_all(stream, [&self.record(user)?, done])?;
        {
            let _current = Current::enter(&*self.driver)?;
            // SAFETY: by the function's contract; the memory returns to the pool in the order of `stream`.
            unsafe { self.driver.copy_on_device(stream, dst, memory.ptr(), n_bytes)? };
        }
        memory.hand_over(stream);
        self.record(stream)?.wait_in(user)
    }

    /// Frees unused memory until at most `keep` bytes of it are left. True if any was freed.
    fn free_unused(&self, keep: usize) -> bool {
        let surplus: Vec<FreeBlock> = {
            let mut blocks = lock(&self.free_blocks);
            let mut kept = 0;
            let surplus = blocks.extract_if(.., |block| {
                kept += block.n_bytes;
                kept > keep
            });
            surplus.collect()
        };
        for block in &surplus {
            if let Some(in_use) = &block.in_use {
                let _ = self.driver.synchronize(in_use.event);
            }
            self.driver.free(block.ptr);
        }
        !surplus.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sizes of blocks: powers of two up to 1 MiB, then multiples of 2 MiB, so that blocks fit later requests.
fn block_bytes(n_bytes: usize) -> usize {
    const LARGE: usize = 1 << 20;
    if n_bytes <= LARGE { n_bytes.next_power_of_two().max(512) } else { n_bytes.next_multiple_of(2 * LARGE) }
}

/// A recorded event. The driver's event is reused after the last owner has dropped it.
pub struct DeviceEvent {
    event: Event,
    stream: Stream,
    position: u64,
    context: Arc<DeviceContext>,
}

impl std::fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceEvent").field("position", &self.position).finish_non_exhaustive()
    }
}

impl PartialEq for DeviceEvent {
    fn eq(&self, other: &DeviceEvent) -> bool {
        self.event == other.event && self.position == other.position
    }
}

impl DeviceEvent {
    /// True if all work before the event is complete. Never blocks.
    pub fn is_complete(&self) -> Result<bool, DriverError> {
        let _current = Current::enter(&*self.context.driver)?;
        self.context.driver.is_complete(self.event)
    }

    /// Blocks until all work before the event is complete.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = Current::enter(&*self.context.driver)?;
        self.context.driver.synchronize(self.event)
    }

    /// Stream in which the event was recorded.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Later events of the same stream have higher positions.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Makes later work in a stream wait for the event. Does not block.
    pub fn wait_in(&self, stream: Stream) -> Result<(), DriverError> {
        self.context.wait(stream, self)
    }

    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }
}

impl Drop for DeviceEvent {
    fn drop(&mut self) {
        lock(&self.context.events).push(self.event);
    }
}

/// Device memory owned by the engine or by a result. On drop it returns to the pool of its device, and is used again after the work that was
/// submitted to its user's stream until then.
pub struct DeviceMemory {
    ptr: DevicePtr,
    n_bytes: usize,
    /// Stream of the last user.
    user: AtomicU64,
    context: Arc<DeviceContext>,
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceMemory").field("ptr", &self.ptr).field("n_bytes", &self.n_bytes).finish_non_exhaustive()
    }
}

impl PartialEq for DeviceMemory {
    fn eq(&self, other: &DeviceMemory) -> bool {
        self.ptr == other.ptr
    }
}

impl DeviceMemory {
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Sets the stream in which the memory is used from now on.
    pub fn hand_over(&self, stream: Stream) {
        self.user.store(stream.0, Ordering::Relaxed);
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let context = &self.context;
        // Without the event the memory cannot be reused safely; the driver is about to go then, and its memory with it.
        let Ok(in_use) = context.record(Stream(self.user.load(Ordering::Relaxed))) else { return };
        let block = FreeBlock { ptr: self.ptr, n_bytes: self.n_bytes, in_use: Some(in_use) };
        lock(&context.free_blocks).push(block);
        if let Ok(_current) = Current::enter(&*context.driver) {
            context.free_unused(MAX_FREE_BYTES);
        }
    }
}
