//! Operations of ranks that share one GPU. Processes on a GPU take turns, and a change of turns costs some 0.15 ms, so one member, the leader,
//! does the work of all: it maps the memory of the others (CUDA IPC) and executes the whole operation with one kernel.
//!
//! Devices write flags in shared host memory: `ready` when a member's inputs are there, `done` when the leader has written all outputs. The
//! leader's thread waits for `ready` before it submits the kernel, the others' threads for `done`; no stream waits for another process.
//! `ready` is written in a stream of its own, which never waits for earlier operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::communicator::Communicator;
use crate::coordinator::Kind;
use crate::device::adasum;
use crate::device::context::{DeviceContext, DeviceMemory};
use crate::device::driver::{Current, DevicePtr, HostMemory};
use crate::device::error::DeviceError;
use crate::device::exports::{ExportError, Exports, Imports};
use crate::device::operation::{DeviceOperation, DeviceTensor, LocalTensor};
use crate::device::plan::{MemberTensor, PlannedTensor};
use crate::device::tasks::{TaskTable, VECTOR_BYTES};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::op::Combine;
use crate::transport::shm::device_area::{Description, FLAG_BYTES, IpcArea, Location, MAX_TENSORS, TensorLocation};
use crate::transport::shm::segment::CommRegion;

/// Pause between two looks at a flag, after some time of looking without a pause.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Shared state of the members of one process set.
pub struct IpcTransport {
    context: Arc<DeviceContext>,
    /// `None` for a single member.
    shared: Option<Shared>,
    exports: Exports,
    imports: Imports,
    /// Number of the last operation. Wraps.
    number: u32,
}

struct Shared {
    area: IpcArea,
    flags: HostMemory,
    /// Keeps the memory mapped.
    _region: Arc<CommRegion>,
}

/// This member's part of a described operation.
#[derive(Default)]
struct Described {
    /// Addresses with which this member takes part, by tensor.
    local: Vec<Option<LocalTensor>>,
    /// Copies in exportable memory of tensors that cannot be exported: the tensor, the address of its output, and the memory.
    bounces: Vec<(usize, DevicePtr, DeviceMemory)>,
}

impl IpcTransport {
    pub fn new(context: Arc<DeviceContext>, communicator: &Communicator) -> Result<IpcTransport, DeviceError> {
        let shared = match communicator.device_area() {
            Some((base, region)) if communicator.size() > 1 => {
                let _current = Current::enter(&*context.driver)?;
                // SAFETY: the flags are whole pages of the mapping, which lives as long as the region.
                let flags = unsafe { context.driver.register_host(base.cast(), FLAG_BYTES)? };
                // SAFETY: the region has an area for all its members, zero at first, and is kept beside.
                let area = unsafe { IpcArea::new(base, communicator.size()) };
                Some(Shared { area, flags, _region: region })
            }
            _ => None,
        };
        Ok(IpcTransport { context, shared, exports: Exports::default(), imports: Imports::default(), number: 0 })
    }

    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Executes one operation: submits its work to the engine's stream.
    pub fn execute(
        &mut self,
        communicator: &mut Communicator,
        operation: &DeviceOperation<'_>,
    ) -> Result<(), DeviceError> {
        let context = self.context.clone();
        let _current = Current::enter(&*context.driver)?;
        for tensors in operation.tensors.chunks(MAX_TENSORS) {
            self.number = self.number.wrapping_add(1);
            if self.shared.is_some() {
                self.execute_shared(communicator, operation, tensors)?;
            } else {
                context.wait_all(context.stream, &operation.ready)?;
                self.execute_alone(operation, tensors)?;
            }
        }
        Ok(())
    }

    /// The only member: scales and copies.
    fn execute_alone(
        &mut self,
        operation: &DeviceOperation<'_>,
        tensors: &[DeviceTensor<'_>],
    ) -> Result<(), DeviceError> {
        let is_scaled = operation.prescale != 1.0 || operation.postscale != 1.0;
        let planned: Vec<PlannedTensor> = tensors
            .iter()
            .filter_map(|tensor| {
                let local = tensor.local.as_ref()?;
                let is_done = local.input == local.output && !is_scaled;
                let member = MemberTensor { input: local.input, output: local.output, splits: tensor.splits.to_vec() };
                (!is_done).then(|| tensor.planned(vec![Some(member)]))
            })
            .collect();
        self.run(operation, &planned)
    }

    fn execute_shared(
        &mut self,
        communicator: &mut Communicator,
        operation: &DeviceOperation<'_>,
        tensors: &[DeviceTensor<'_>],
    ) -> Result<(), DeviceError> {
        let (me, n, number) = (communicator.rank(), communicator.size(), self.number);
        let is_present = tensors.iter().any(|tensor| tensor.local.is_some());
        // The first member leads if it is present, and then nobody waits for its flag.
        let is_followed = is_present && me == 0;
        if is_present && !is_followed {
            self.context.wait_all(self.context.ready_stream, &operation.ready)?;
        }
        let described = self.describe(me, tensors)?;
        let context = self.context.clone();
        let (driver, stream) = (&*context.driver, context.stream);
        let shared = self.shared.as_ref().expect("several members share memory");
        let (area, flags) = (shared.area, shared.flags.device);
        if is_present && !is_followed {
            driver.write_value(context.ready_stream, flags + IpcArea::ready_offset(me), number)?;
        }
        communicator.barrier()?;
        // SAFETY: the barrier is over, and the next one comes with the next operation.
        let is_present_at = |member| unsafe {
            let description = area.description(member, number);
            (0..tensors.len()).any(|tensor| (*description).tensors[tensor].is_present)
        };
        let present: Vec<usize> = (0..n).filter(|member| is_present_at(*member)).collect();
        let Some(leader) = present.first().copied() else { return Ok(()) };
        if me == leader {
            let planned = self.resolve(me, n, tensors, &described)?;
            if is_followed {
                context.wait_all(stream, &operation.ready)?;
            }
            for member in present.iter().filter(|member| **member != 0) {
                wait_for(communicator, *member, &area.flags(*member).ready, number)?;
            }
            self.run(operation, &planned)?;
            driver.write_value(stream, flags + IpcArea::done_offset(me), number)?;
        } else if is_present {
            wait_for(communicator, leader, &area.flags(leader).done, number)?;
        }
        self.copy_back(tensors, &described)
    }

    /// Writes this member's description. Tensors in memory that cannot be exported are copied to memory that can.
    fn describe(&mut self, me: usize, tensors: &[DeviceTensor<'_>]) -> Result<Described, DeviceError> {
        let (context, number) = (self.context.clone(), self.number);
        let area = self.shared.as_ref().expect("several members share memory").area;
        let mut described = Described::default();
        let mut copies = TaskTable::new(1);
        let mut locations = Vec::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            let Some(local) = tensor.local else {
                locations.push(TensorLocation::default());
                described.local.push(None);
                continue;
            };
            // The first member leads when it is present, and the leader's memory is mapped by no other.
            let (location, used) = if me == 0 {
                (TensorLocation { is_present: true, ..TensorLocation::default() }, local)
            } else {
                match self.locate(me, tensor, local) {
                    Ok(location) => (location, local),
                    Err(ExportError::Driver(error)) => return Err(error.into()),
                    Err(ExportError::NotExportable) => {
                        // Apart as the tensors are: the leader reads inputs while it writes outputs.
                        let output_at = match local.input == local.output {
                            true => 0,
                            false => tensor.input_bytes.next_multiple_of(VECTOR_BYTES),
                        };
                        let n_bytes = tensor.input_bytes.max(output_at + tensor.output_bytes);
                        let memory = context.allocate(n_bytes as usize);
                        let memory = memory.map_err(|error| DeviceError::fusion_buffer(error, n_bytes))?;
                        let used = LocalTensor { input: memory.ptr(), output: memory.ptr() + output_at };
                        let location = self.locate(me, tensor, used).map_err(|_| DeviceError::CannotExport)?;
                        copies.push(tensor.input_bytes, &[local.input], &[memory.ptr()]);
                        described.bounces.push((index, used.output, memory));
                        (location, used)
                    }
                }
            };
            locations.push(location);
            described.local.push(Some(used));
        }
        // SAFETY: the tensors' memory is valid until the operation is complete; the copies' memory is used in this stream only.
        unsafe { context.launch(context.ready_stream, &copies, Dtype::U8, Combine::Sum, 1.0, 1.0)? };
        let freed = self.exports.take_freed();
        // SAFETY: this member's description of the next operation, before its barrier.
        unsafe {
            let description = &mut *area.description(me, number);
            description.tensors[..locations.len()].copy_from_slice(&locations);
            description.n_freed = freed.len() as u32;
            description.freed[..freed.len()].copy_from_slice(&freed);
            if let Some(tensor) = tensors.first() {
                description.splits[..tensor.splits.len()].copy_from_slice(tensor.splits);
            }
        }
        Ok(described)
    }

    /// The locations of a tensor of this member. An empty one may have no memory.
    fn locate(
        &mut self,
        me: usize,
        tensor: &DeviceTensor<'_>,
        local: LocalTensor,
    ) -> Result<TensorLocation, ExportError> {
        let area = self.shared.as_ref().expect("several members share memory").area;
        let mut locate = |ptr, n_bytes| match n_bytes {
            0 => Ok(Location::NONE),
            _ => self.exports.locate(&*self.context.driver, &area, me, self.number, ptr),
        };
        let input = locate(local.input, tensor.input_bytes)?;
        let output = locate(local.output, tensor.output_bytes)?;
        Ok(TensorLocation { is_present: true, input, output })
    }

    /// Reads the descriptions of all members and maps their memory.
    fn resolve(
        &mut self,
        me: usize,
        n: usize,
        tensors: &[DeviceTensor<'_>],
        described: &Described,
    ) -> Result<Vec<PlannedTensor>, DeviceError> {
        let (number, driver) = (self.number, self.context.driver.clone());
        let area = self.shared.as_ref().expect("several members share memory").area;
        // SAFETY: after the operation's barrier and before the next one.
        let descriptions: Vec<&Description> =
            (0..n).map(|member| unsafe { &*area.description(member, number) }).collect();
        for (member, description) in descriptions.iter().enumerate().filter(|(member, _)| *member != me) {
            for index in &description.freed[..description.n_freed as usize] {
                self.imports.close(&*driver, member, *index);
            }
        }
        let mut planned = Vec::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            let mut members = Vec::with_capacity(n);
            for (member, description) in descriptions.iter().enumerate() {
                let location = description.tensors[index];
                if !location.is_present {
                    members.push(None);
                    continue;
                }
                let local = match described.local[index] {
                    Some(local) if member == me => local,
                    _ => {
                        let mut address = |location| self.imports.resolve(&*driver, &area, member, location);
                        LocalTensor { input: address(location.input)?, output: address(location.output)? }
                    }
                };
                let splits = if tensor.splits.is_empty() { Vec::new() } else { description.splits[..n].to_vec() };
                members.push(Some(MemberTensor { input: local.input, output: local.output, splits }));
            }
            planned.push(tensor.planned(members));
        }
        Ok(planned)
    }

    /// Submits the kernels of an operation on all members' tensors.
    fn run(&self, operation: &DeviceOperation<'_>, planned: &[PlannedTensor]) -> Result<(), DeviceError> {
        if operation.kind == Kind::Adasum {
            return adasum::run(&self.context, operation, planned);
        }
        let (table, dtype, combine) = operation.plan().tasks(planned, operation.combine);
        let (prescale, postscale) = match operation.plan().reduces() {
            true => (operation.prescale, operation.postscale),
            false => (1.0, 1.0),
        };
        // SAFETY: all members keep their tensors until the operation is complete on their stream, which waits for this one.
        unsafe { self.context.launch(self.context.stream, &table, dtype, combine, prescale, postscale)? };
        Ok(())
    }

    /// Copies results from exportable memory to the tensors.
    fn copy_back(&self, tensors: &[DeviceTensor<'_>], described: &Described) -> Result<(), DeviceError> {
        let mut copies = TaskTable::new(1);
        for (index, output, _) in &described.bounces {
            let tensor = &tensors[*index];
            if let Some(local) = tensor.local {
                copies.push(tensor.output_bytes, &[*output], &[local.output]);
            }
        }
        // SAFETY: as in `describe`; the memory returns to its pool with an event after these copies.
        unsafe { self.context.launch(self.context.stream, &copies, Dtype::U8, Combine::Sum, 1.0, 1.0)? };
        Ok(())
    }
}

impl Drop for IpcTransport {
    fn drop(&mut self) {
        let driver = &*self.context.driver;
        let Ok(_current) = Current::enter(driver) else { return };
        // What this member has submitted must be complete before its memory is unmapped. It does not depend on other ranks.
        for stream in [self.context.stream, self.context.ready_stream] {
            if let Ok(last) = self.context.record(stream) {
                let _ = last.synchronize();
            }
        }
        self.imports.close_all(driver);
        if let Some(shared) = &self.shared {
            driver.unregister_host(shared.flags);
        }
    }
}

/// Waits until the device of a member has written the number of an operation. The thread polls: a stream that waits for another process keeps
/// its process's turn on the GPU (measured: 9.0 instead of 5.0 ms a step of four small trainings).
fn wait_for(communicator: &Communicator, member: usize, flag: &AtomicU32, number: u32) -> Result<(), Error> {
    let is_written = || flag.load(Ordering::Acquire).wrapping_sub(number) as i32 >= 0;
    let (policy, peer_table) = communicator.wait_policy();
    if policy.spin(is_written) {
        return Ok(());
    }
    let rank = communicator.world_ranks()[member];
    policy.wait(peer_table, rank, is_written, |_| std::thread::sleep(POLL_INTERVAL))
}
