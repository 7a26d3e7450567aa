//! A driver without a device, for tests: memory of this process, streams that are threads, kernels that run on the CPU. Ranks are threads of
//! one process, so exported memory has the same address everywhere. Checks what a device would not: that kernels access only memory that the
//! rank has allocated or mapped, and that mappings are of memory that exists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use crate::Dtype;
use crate::device::driver::{
    AdasumPair, Allocation, DeviceProperties, DevicePtr, Driver, DriverError, Event, HostMemory, IpcHandle, Stream,
    TaskLaunch,
};
use crate::device::tasks::{Chunk, read_chunk};
use crate::reduce;

type Work = Box<dyn FnOnce() + Send>;

/// Memory of all fake devices of the process, by base.
static MEMORY: Mutex<BTreeMap<u64, FakeMemory>> = Mutex::new(BTreeMap::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

struct FakeMemory {
    _memory: Box<[u128]>,
    n_bytes: usize,
    id: u64,
    /// Number of the driver that has allocated it.
    owner: u64,
}

pub struct FakeDriver {
    /// Unique in the process.
    number: u64,
    properties: DeviceProperties,
    streams: Mutex<HashMap<u64, Sender<Work>>>,
    events: Mutex<HashMap<u64, Arc<FakeEvent>>>,
    /// Events that all streams wait for, also those that are made later, with the number of the record.
    context_waits: Mutex<Vec<(Arc<FakeEvent>, u64)>>,
    next: AtomicU64,
    /// Allocations that cannot be exported, as those of some allocators.
    pub unexportable: Mutex<HashSet<u64>>,
    exports_nothing: AtomicBool,
    /// Bases and ids of the imports that are open.
    pub imported: Mutex<Vec<(u64, u64)>>,
    /// Imports so far.
    pub n_imports: AtomicUsize,
    /// Kernels that this device has executed.
    pub n_launches: AtomicU64,
    /// Allocations of at least this size fail as if the memory were exhausted.
    pub out_of_memory: Mutex<Option<usize>>,
    /// Size of the memory.
    memory_limit: Mutex<Option<u64>>,
    /// Accesses of kernels that a device would not have survived.
    errors: Mutex<Vec<String>>,
}

#[derive(Default)]
struct FakeEvent {
    /// Records that were submitted, and those that are complete.
    state: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl FakeEvent {
    fn complete(&self, number: u64) {
        let mut state = self.state.lock().expect("no panic");
        state.1 = state.1.max(number);
        self.changed.notify_all();
    }

    /// Blocks until the record with this number is complete.
    fn wait(&self, number: u64) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| state.1 < number).expect("no panic"));
    }
}

impl FakeDriver {
    pub fn new(gpu: u8) -> Arc<FakeDriver> {
        Arc::new(FakeDriver {
            number: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            properties: DeviceProperties {
                name: "fake".to_owned(),
                uuid: [gpu; 16],
                has_stream_memory_operations: true,
                has_context_events: true,
                kernels: Ok(()),
            },
            streams: Mutex::default(),
            events: Mutex::default(),
            context_waits: Mutex::default(),
            next: AtomicU64::new(1),
            unexportable: Mutex::default(),
            exports_nothing: AtomicBool::new(false),
            imported: Mutex::default(),
            n_imports: AtomicUsize::new(0),
            n_launches: AtomicU64::new(0),
            out_of_memory: Mutex::default(),
            memory_limit: Mutex::default(),
            errors: Mutex::default(),
        })
    }

    /// Device memory with these bytes.
    pub fn memory(&self, bytes: &[u8]) -> DevicePtr {
        let ptr = self.allocate(bytes.len().max(1)).expect("there is memory");
        self.write(ptr, bytes);
        ptr
    }

    /// Replaces the content of device memory.
    pub fn write(&self, ptr: DevicePtr, bytes: &[u8]) {
        // SAFETY: tests write memory of that size when no work uses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host(ptr), bytes.len()) };
    }

    /// Content of device memory.
    pub fn read(&self, ptr: DevicePtr, n_bytes: usize) -> Vec<u8> {
        // SAFETY: tests read memory that they or the engine have allocated, when no work writes it.
        unsafe { std::slice::from_raw_parts(host(ptr), n_bytes) }.to_vec()
    }

    /// As if an allocation were freed, and the next one got its address.
    pub fn replace(&self, base: DevicePtr) {
        let mut memory = MEMORY.lock().expect("no panic");
        memory.get_mut(&base).expect("it is allocated").id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    }

    /// Sizes of the allocations of this device.
    pub fn allocated(&self) -> Vec<u64> {
        let memory = MEMORY.lock().expect("no panic");
        memory.values().filter(|memory| memory.owner == self.number).map(|memory| memory.n_bytes as u64).collect()
    }

    /// Limits the sum of all allocations.
    pub fn limit_memory(&self, n_bytes: u64) {
        *self.memory_limit.lock().expect("no panic") = Some(n_bytes);
    }

    /// As a driver that lets no other process share memory.
    pub fn exports_nothing(&self) {
        self.exports_nothing.store(true, Ordering::Relaxed);
    }

    /// Ends the threads of all streams when their work is done.
    pub fn end_streams(&self) {
        self.streams.lock().expect("no panic").clear();
    }

    pub fn n_events(&self) -> usize {
        self.events.lock().expect("no panic").len()
    }

    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("no panic").clone()
    }

    /// True if kernels of this device may access the memory; otherwise it is an error.
    fn check_access(&self, ptr: DevicePtr, n_bytes: u64) -> bool {
        let memory = MEMORY.lock().expect("no panic");
        let known = memory.range(..=ptr).next_back();
        let known = known.filter(|(base, memory)| ptr + n_bytes <= *base + memory.n_bytes as u64);
        let error = match known {
            None => format!("a kernel accesses {n_bytes} bytes at {ptr:x}, which are not allocated"),
            Some((base, memory)) => {
                let is_imported = || self.imported.lock().expect("no panic").contains(&(*base, memory.id));
                if memory.owner == self.number || is_imported() {
                    return true;
                }
                format!("a kernel accesses memory of another rank at {ptr:x}, which is not mapped")
            }
        };
        self.errors.lock().expect("no panic").push(error);
        false
    }

    /// Puts work of the test into a stream.
    pub fn submit(&self, stream: Stream, work: impl FnOnce() + Send + 'static) {
        let mut streams = self.streams.lock().expect("no panic");
        let queue = streams.entry(stream.0).or_insert_with(|| {
            let (sender, receiver) = channel::<Work>();
            std::thread::spawn(move || receiver.iter().for_each(|work| work()));
            for (event, number) in self.context_waits.lock().expect("no panic").iter().cloned() {
                sender.send(Box::new(move || event.wait(number))).expect("the stream's thread lives");
            }
            sender
        });
        queue.send(Box::new(work)).expect("the stream's thread lives");
    }

    fn streams(&self) -> Vec<Stream> {
        self.streams.lock().expect("no panic").keys().map(|stream| Stream(*stream)).collect()
    }

    fn event(&self, event: Event) -> Arc<FakeEvent> {
        self.events.lock().expect("no panic")[&event.0].clone()
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

fn host(ptr: DevicePtr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(ptr as usize)
}

fn word(address: DevicePtr) -> &'static AtomicU32 {
    // SAFETY: flags of a communicator's region, which outlives the waits of its members.
    unsafe { &*host(address).cast::<AtomicU32>() }
}

fn failed(call: &'static str, code: i32) -> DriverError {
    DriverError { call, code, text: "the test says so".to_owned() }
}

fn allocation_at(ptr: DevicePtr) -> Option<Allocation> {
    let memory = MEMORY.lock().expect("no panic");
    let (base, FakeMemory { n_bytes, id, .. }) = memory.range(..=ptr).next_back()?;
    (ptr < base + *n_bytes as u64).then_some(Allocation { base: *base, n_bytes: *n_bytes as u64, id: *id })
}

impl Driver for FakeDriver {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn enter(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn leave(&self) {}

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr, DriverError> {
        let limit = *self.out_of_memory.lock().expect("no panic");
        let all = *self.memory_limit.lock().expect("no panic");
        let is_full = all.is_some_and(|all| self.allocated().iter().sum::<u64>() + n_bytes as u64 > all);
        if is_full || limit.is_some_and(|limit| n_bytes >= limit) {
            return Err(failed("cuMemAlloc_v2", DriverError::OUT_OF_MEMORY));
        }
        let memory = vec![0u128; n_bytes.div_ceil(16)].into_boxed_slice();
        let base = memory.as_ptr().expose_provenance() as u64;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let memory = FakeMemory { _memory: memory, n_bytes, id, owner: self.number };
        MEMORY.lock().expect("no panic").insert(base, memory);
        Ok(base)
    }

    fn free(&self, ptr: DevicePtr) {
        self.unexportable.lock().expect("no panic").remove(&ptr);
        MEMORY.lock().expect("no panic").remove(&ptr).expect("memory is freed once");
    }

    fn allocation_of(&self, ptr: DevicePtr) -> Result<Allocation, DriverError> {
        allocation_at(ptr).ok_or_else(|| failed("cuMemGetAddressRange_v2", 1))
    }

    fn allocation_id(&self, ptr: DevicePtr) -> Result<u64, DriverError> {
        Ok(allocation_at(ptr).map_or(0, |allocation| allocation.id))
    }

    fn export(&self, base: DevicePtr) -> Result<IpcHandle, DriverError> {
        let is_unexportable = self.unexportable.lock().expect("no panic").contains(&base);
        if is_unexportable || self.exports_nothing.load(Ordering::Relaxed) {
            return Err(failed("cuIpcGetMemHandle", 1));
        }
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&base.to_le_bytes());
        Ok(IpcHandle(bytes))
    }

    fn import(&self, handle: &IpcHandle) -> Result<DevicePtr, DriverError> {
        let base = u64::from_le_bytes(handle.0[..8].try_into().expect("8 bytes"));
        let allocation = allocation_at(base).ok_or_else(|| failed("cuIpcOpenMemHandle_v2", 1))?;
        self.imported.lock().expect("no panic").push((base, allocation.id));
        self.n_imports.fetch_add(1, Ordering::Relaxed);
        Ok(base)
    }

    fn close_import(&self, ptr: DevicePtr) {
        let mut imported = self.imported.lock().expect("no panic");
        let index = imported.iter().position(|(base, _)| *base == ptr).expect("an import is closed once");
        imported.remove(index);
    }

    fn allocate_host(&self, n_bytes: usize) -> Result<HostMemory, DriverError> {
        let device = self.allocate(n_bytes)?;
        Ok(HostMemory { host: host(device), device, n_bytes })
    }

    fn free_host(&self, memory: HostMemory) {
        self.free(memory.device);
    }

    unsafe fn register_host(&self, host: *mut c_void, n_bytes: usize) -> Result<HostMemory, DriverError> {
        Ok(HostMemory { host: host.cast(), device: host.expose_provenance() as u64, n_bytes })
    }

    fn unregister_host(&self, _: HostMemory) {}

    fn new_stream(&self) -> Result<Stream, DriverError> {
        let stream = Stream(self.number());
        self.submit(stream, || {});
        Ok(stream)
    }

    fn destroy_stream(&self, stream: Stream) {
        self.streams.lock().expect("no panic").remove(&stream.0);
    }

    fn new_event(&self) -> Result<Event, DriverError> {
        let event = Event(self.number());
        self.events.lock().expect("no panic").insert(event.0, Arc::default());
        Ok(event)
    }

    fn destroy_event(&self, event: Event) {
        self.events.lock().expect("no panic").remove(&event.0);
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        let event = self.event(event);
        let number = {
            let mut state = event.state.lock().expect("no panic");
            state.0 += 1;
            state.0
        };
        if stream == Stream::CONTEXT {
            // Complete when the last stream gets there.
            let streams = self.streams();
            let n_left = Arc::new(AtomicUsize::new(streams.len()));
            for stream in streams {
                let (event, n_left) = (event.clone(), n_left.clone());
                self.submit(stream, move || {
                    if n_left.fetch_sub(1, Ordering::SeqCst) == 1 {
                        event.complete(number);
                    }
                });
            }
            return Ok(());
        }
        self.submit(stream, move || event.complete(number));
        Ok(())
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        let event = self.event(event);
        let number = event.state.lock().expect("no panic").0;
        if stream == Stream::CONTEXT {
            self.context_waits.lock().expect("no panic").push((event.clone(), number));
            for stream in self.streams() {
                let event = event.clone();
                self.submit(stream, move || event.wait(number));
            }
            return Ok(());
        }
        self.submit(stream, move || event.wait(number));
        Ok(())
    }

    fn is_complete(&self, event: Event) -> Result<bool, DriverError> {
        let event = self.event(event);
        let state = event.state.lock().expect("no panic");
        Ok(state.1 >= state.0)
    }

    fn synchronize(&self, event: Event) -> Result<(), DriverError> {
        let event = self.event(event);
        let number = event.state.lock().expect("no panic").0;
        event.wait(number);
        Ok(())
    }

    fn write_value(&self, stream: Stream, address: DevicePtr, value: u32) -> Result<(), DriverError> {
        self.submit(stream, move || word(address).store(value, Ordering::SeqCst));
        Ok(())
    }

    unsafe fn copy_to_host(
        &self,
        stream: Stream,
        dst: *mut u8,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        let dst = dst.expose_provenance();
        // SAFETY: valid until the copy is complete, by the function's contract.
        self.submit(stream, move || unsafe {
            std::ptr::copy_nonoverlapping(host(src), std::ptr::with_exposed_provenance_mut(dst), n_bytes);
        });
        Ok(())
    }

    unsafe fn copy_to_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: *const u8,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        // Pinned memory is read when the stream gets there. The source of other memory may change when the call returns.
        let pinned = src.expose_provenance() as u64;
        if allocation_at(pinned).is_some() {
            // SAFETY: valid until the copy is complete, by the function's contract.
            self.submit(stream, move || unsafe { std::ptr::copy_nonoverlapping(host(pinned), host(dst), n_bytes) });
            return Ok(());
        }
        // SAFETY: readable, by the function's contract.
        let bytes = unsafe { std::slice::from_raw_parts(src, n_bytes) }.to_vec();
        // SAFETY: valid until the copy is complete, by the function's contract.
        self.submit(stream, move || unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host(dst), bytes.len()) });
        Ok(())
    }

    unsafe fn copy_on_device(
        &self,
        stream: Stream,
        dst: DevicePtr,
        src: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DriverError> {
        // SAFETY: valid until the copy is complete, by the function's contract.
        self.submit(stream, move || unsafe { std::ptr::copy_nonoverlapping(host(src), host(dst), n_bytes) });
        Ok(())
    }

    unsafe fn launch_tasks(&self, stream: Stream, launch: &TaskLaunch) -> Result<(), DriverError> {
        self.n_launches.fetch_add(1, Ordering::Relaxed);
        let (launch, element) = (*launch, launch.dtype.size());
        let addresses_are_valid = |chunk| {
            // SAFETY: a written table, by the function's contract.
            let chunk = unsafe { read_chunk(launch.table.host.cast(), launch.first_chunk, chunk, element) };
            let Chunk { first_element, n_elements, sources, destinations } = chunk;
            let (start, n_bytes) = (first_element * element as u64, n_elements * element as u64);
            let mut addresses = sources.iter().filter(|source| **source != 0).chain(&destinations);
            addresses.all(|address| self.check_access(address + start, n_bytes))
        };
        if !(0..launch.n_chunks).all(addresses_are_valid) {
            return Ok(());
        }
        self.submit(stream, move || {
            for chunk in 0..launch.n_chunks {
                // SAFETY: a written table, which stays until the work is complete.
                unsafe { run_chunk(&launch, chunk) };
            }
        });
        Ok(())
    }

    unsafe fn launch_adasum(
        &self,
        stream: Stream,
        dtype: Dtype,
        pairs: &[AdasumPair],
        _dots: DevicePtr,
    ) -> Result<(), DriverError> {
        let is_valid = |pair: &&AdasumPair| {
            let n_bytes = pair.n_elements * dtype.size() as u64;
            self.check_access(pair.lower, n_bytes) && self.check_access(pair.upper, n_bytes)
        };
        let pairs: Vec<AdasumPair> = pairs.iter().filter(is_valid).copied().collect();
        self.submit(stream, move || {
            for pair in pairs {
                let n_bytes = pair.n_elements as usize * dtype.size();
                // SAFETY: two vectors that do not overlap, valid until the work is complete.
                let [lower, upper] = [pair.lower, pair.upper]
                    .map(|vector| unsafe { std::slice::from_raw_parts_mut(host(vector), n_bytes) });
                let dots = reduce::dots(dtype, lower, upper).expect("floats");
                reduce::adasum_into(dtype, dots, lower, upper).expect("floats");
                upper.copy_from_slice(lower);
            }
        });
        Ok(())
    }
}

/// Executes a chunk with the kernels of the CPU.
///
/// # Safety
/// As [`Driver::launch_tasks`].
unsafe fn run_chunk(launch: &TaskLaunch, chunk: usize) {
    let element = launch.dtype.size();
    // SAFETY: a written table, by the function's contract.
    let chunk = unsafe { read_chunk(launch.table.host.cast(), launch.first_chunk, chunk, element) };
    let (start, n_bytes) = (chunk.first_element as usize * element, chunk.n_elements as usize * element);
    let source = |address: DevicePtr| -> Vec<u8> {
        if address == 0 {
            return vec![0; n_bytes];
        }
        // SAFETY: valid by the function's contract.
        let mut bytes = unsafe { std::slice::from_raw_parts(host(address + start as u64), n_bytes) }.to_vec();
        reduce::scale(launch.dtype, launch.prescale, &mut bytes).expect("it was checked");
        bytes
    };
    let mut sum = source(chunk.sources[0]);
    for address in &chunk.sources[1..] {
        let next = source(*address);
        // SAFETY: two vectors of the same size.
        unsafe { reduce::combine_raw(launch.dtype, launch.combine, sum.as_mut_ptr(), next.as_ptr(), n_bytes) };
    }
    reduce::scale(launch.dtype, launch.postscale, &mut sum).expect("it was checked");
    for address in &chunk.destinations {
        // SAFETY: valid by the function's contract.
        unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr(), host(address + start as u64), n_bytes) };
    }
}
