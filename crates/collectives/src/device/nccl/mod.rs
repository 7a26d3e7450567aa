//! Operations of ranks with a GPU each, by NCCL in the engine's stream. Small tensors are packed into a buffer and scaled by the engine's own
//! kernel. What NCCL lacks (16-bit integers, booleans, Adasum) is gathered from all members and combined on each.

pub mod library;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::partition;
use crate::communicator::Communicator;
use crate::coordinator::Kind;
use crate::device::adasum;
use crate::device::context::{DeviceContext, DeviceMemory};
use crate::device::driver::{Current, DevicePtr};
use crate::device::error::DeviceError;
use crate::device::nccl::library::{Nccl, NcclComm, Span, UniqueId, reduction};
use crate::device::operation::{DeviceOperation, DeviceTensor};
use crate::device::plan::MemberTensor;
use crate::device::tasks::TaskTable;
use crate::dtype::Dtype;
use crate::op::Combine;

/// Tensors of a packed buffer begin at multiples of this, so that kernels can use vectors.
const ALIGNMENT: u64 = 16;
/// How long the end of the engine waits for operations in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A communicator of one process set.
pub struct NcclTransport {
    context: Arc<DeviceContext>,
    /// `None` after [`NcclTransport::abort`].
    comm: Option<NcclComm>,
    n: usize,
    me: usize,
}

impl NcclTransport {
    /// Connects all members. Collective.
    pub fn new(context: Arc<DeviceContext>, communicator: &mut Communicator) -> Result<NcclTransport, DeviceError> {
        let nccl = Nccl::get().expect("selected only if all members have NCCL");
        let (n, me) = (communicator.size(), communicator.rank());
        let mut id = UniqueId([0; 128]);
        if me == 0 {
            id = nccl.new_id()?;
        }
        communicator.broadcast(&mut id.0, 0)?;
        let _current = Current::enter(&*context.driver)?;
        let comm = NcclComm::connect(nccl, id, n, me, communicator.peer_table().clone())?;
        Ok(NcclTransport { context: context.clone(), comm: Some(comm), n, me })
    }

    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Executes one operation: submits its work to the engine's stream.
    pub fn execute(&mut self, operation: &DeviceOperation<'_>) -> Result<(), DeviceError> {
        let context = self.context.clone();
        let _current = Current::enter(&*context.driver)?;
        context.wait_all(context.stream, &operation.ready)?;
        match operation.kind {
            Kind::Allreduce | Kind::Reducescatter => match reduction(operation.dtype, operation.combine) {
                Some(numbers) if operation.kind == Kind::Allreduce => self.allreduce(operation, numbers)?,
                Some(numbers) => self.reducescatter(operation, numbers)?,
                None => self.reduce_gathered(operation)?,
            },
            Kind::Adasum => self.adasum(operation)?,
            Kind::Broadcast | Kind::Allgather | Kind::Alltoall => {
                operation.tensors.iter().try_for_each(|tensor| self.exchange(operation, tensor))?;
            }
            Kind::Join | Kind::Barrier => {}
        }
        Ok(())
    }

    fn comm(&self) -> Result<&NcclComm, DeviceError> {
        self.comm.as_ref().ok_or_else(|| DeviceError::Transport("the engine has shut down".to_owned()))
    }

    fn allreduce(&self, operation: &DeviceOperation<'_>, numbers: (i32, i32)) -> Result<(), DeviceError> {
        let (comm, stream) = (self.comm()?, self.context.stream);
        if let [DeviceTensor { local: Some(local), n_elements, .. }] = &operation.tensors[..]
            && operation.prescale == 1.0
        {
            let from = Span { at: local.input, count: *n_elements as usize };
            comm.group(|| comm.all_reduce(from, local.output, numbers, stream))?;
            return self.scale_outputs(operation);
        }
        let (buffer, offsets, n_bytes) = self.pack(operation)?;
        let from = Span { at: buffer.ptr(), count: n_bytes as usize / operation.dtype.size() };
        comm.group(|| comm.all_reduce(from, buffer.ptr(), numbers, stream))?;
        let mut unpack = TaskTable::new(operation.dtype.size());
        for (tensor, offset) in operation.tensors.iter().zip(offsets) {
            if let Some(local) = tensor.local {
                unpack.push(tensor.n_elements, &[buffer.ptr() + offset], &[local.output]);
            }
        }
        self.launch(&unpack, operation.dtype, 1.0, operation.postscale)
    }

    fn reducescatter(&self, operation: &DeviceOperation<'_>, numbers: (i32, i32)) -> Result<(), DeviceError> {
        let (comm, stream, element) = (self.comm()?, self.context.stream, operation.dtype.size() as u64);
        let packed = if operation.prescale == 1.0 { None } else { Some(self.pack(operation)?) };
        comm.group(|| {
            for (index, tensor) in operation.tensors.iter().enumerate() {
                let Some(local) = tensor.local else { continue };
                let input = packed.as_ref().map_or(local.input, |(buffer, offsets, _)| buffer.ptr() + offsets[index]);
                for member in 0..self.n {
                    let (first, count) = shard(tensor, self.n, member);
                    let from = Span { at: input + first * element, count: count as usize };
                    comm.reduce(from, local.output, numbers, member, stream)?;
                }
            }
            Ok(())
        })?;
        self.scale_outputs(operation)
    }

    /// Reduction by gathering all members' tensors.
    fn reduce_gathered(&self, operation: &DeviceOperation<'_>) -> Result<(), DeviceError> {
        let element = operation.dtype.size() as u64;
        let mut gathered = Vec::with_capacity(operation.tensors.len());
        let mut table = TaskTable::new(element as usize);
        for tensor in &operation.tensors {
            let (memory, vectors) = self.gather(tensor)?;
            if let Some(local) = tensor.local {
                let (first, count) = match operation.kind {
                    Kind::Reducescatter => shard(tensor, self.n, self.me),
                    _ => (0, tensor.n_elements),
                };
                let sources: Vec<DevicePtr> = vectors.iter().map(|vector| vector + first * element).collect();
                table.push(count, &sources, &[local.output]);
            }
            gathered.push(memory);
        }
        // SAFETY: the gathered memory is the engine's and used in its stream only.
        let (dtype, combine) = (operation.dtype, operation.combine);
        unsafe {
            self.context.launch(self.context.stream, &table, dtype, combine, operation.prescale, operation.postscale)?
        };
        Ok(())
    }

    fn adasum(&self, operation: &DeviceOperation<'_>) -> Result<(), DeviceError> {
        let mut gathered = Vec::with_capacity(operation.tensors.len());
        let mut planned = Vec::with_capacity(operation.tensors.len());
        let mut copies = TaskTable::new(operation.dtype.size());
        for tensor in &operation.tensors {
            let (memory, vectors) = self.gather(tensor)?;
            let member = |at: &DevicePtr| Some(MemberTensor { input: *at, output: *at, splits: Vec::new() });
            planned.push(tensor.planned(vectors.iter().map(member).collect()));
            if let Some(local) = tensor.local {
                copies.push(tensor.n_elements, &[vectors[self.me]], &[local.output]);
            }
            gathered.push(memory);
        }
        adasum::run(&self.context, operation, &planned)?;
        self.launch(&copies, operation.dtype, 1.0, 1.0)
    }

    /// Gathers a tensor of all members: memory for all, and the address of each member's vector. Zeros of a member that has joined.
    fn gather(&self, tensor: &DeviceTensor<'_>) -> Result<(DeviceMemory, Vec<DevicePtr>), DeviceError> {
        let (comm, stream) = (self.comm()?, self.context.stream);
        let stride = tensor.input_bytes.next_multiple_of(ALIGNMENT);
        let n_bytes = stride * self.n as u64;
        let memory = self.allocate(n_bytes)?;
        let vectors: Vec<DevicePtr> = (0..self.n as u64).map(|member| memory.ptr() + member * stride).collect();
        let mut own = TaskTable::new(1);
        own.push(tensor.input_bytes, &[tensor.local.map_or(0, |local| local.input)], &[vectors[self.me]]);
        self.launch(&own, Dtype::U8, 1.0, 1.0)?;
        comm.group(|| {
            for (member, vector) in vectors.iter().enumerate() {
                let span = Span { at: *vector, count: tensor.input_bytes as usize };
                comm.broadcast(*vector, span, member, stream)?;
            }
            Ok(())
        })?;
        Ok((memory, vectors))
    }

    /// Broadcast, allgather and alltoall: copies of bytes.
    fn exchange(&self, operation: &DeviceOperation<'_>, tensor: &DeviceTensor<'_>) -> Result<(), DeviceError> {
        let (comm, stream) = (self.comm()?, self.context.stream);
        let Some(local) = tensor.local else { return Ok(()) };
        let row_bytes = tensor.row * operation.dtype.size() as u64;
        match operation.kind {
            Kind::Broadcast => {
                let to = Span { at: local.output, count: tensor.output_bytes as usize };
                comm.group(|| comm.broadcast(local.input, to, operation.root, stream))?;
            }
            Kind::Allgather => comm.group(|| {
                let mut at = local.output;
                for (member, rows) in tensor.rows.iter().enumerate() {
                    let to = Span { at, count: (rows * row_bytes) as usize };
                    comm.broadcast(local.input, to, member, stream)?;
                    at += rows * row_bytes;
                }
                Ok(())
            })?,
            Kind::Alltoall => comm.group(|| {
                let (mut from, mut to) = (local.input, local.output);
                for (member, (sent, received)) in tensor.splits.iter().zip(tensor.rows).enumerate() {
                    comm.send(Span { at: from, count: (sent * row_bytes) as usize }, member, stream)?;
                    comm.recv(Span { at: to, count: (received * row_bytes) as usize }, member, stream)?;
                    from += sent * row_bytes;
                    to += received * row_bytes;
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    }

    /// Copies all tensors, scaled, into one buffer. Returns it with the offset of each tensor and its size.
    fn pack(&self, operation: &DeviceOperation<'_>) -> Result<(DeviceMemory, Vec<u64>, u64), DeviceError> {
        let lengths = operation.tensors.iter().map(|tensor| tensor.input_bytes);
        let (offsets, n_bytes) = packed_offsets(lengths);
        let buffer = self.allocate(n_bytes)?;
        let mut table = TaskTable::new(operation.dtype.size());
        for (tensor, offset) in operation.tensors.iter().zip(&offsets) {
            // Zeros for a rank that has joined.
            let source = tensor.local.map_or(0, |local| local.input);
            table.push(tensor.n_elements, &[source], &[buffer.ptr() + offset]);
        }
        self.launch(&table, operation.dtype, operation.prescale, 1.0)?;
        Ok((buffer, offsets, n_bytes))
    }

    /// Applies the factor of the result to the outputs.
    fn scale_outputs(&self, operation: &DeviceOperation<'_>) -> Result<(), DeviceError> {
        if operation.postscale == 1.0 {
            return Ok(());
        }
        let mut table = TaskTable::new(operation.dtype.size());
        for tensor in &operation.tensors {
            if let Some(local) = tensor.local {
                let n_elements = tensor.output_bytes / operation.dtype.size() as u64;
                table.push(n_elements, &[local.output], &[local.output]);
            }
        }
        self.launch(&table, operation.dtype, 1.0, operation.postscale)
    }

    fn allocate(&self, n_bytes: u64) -> Result<DeviceMemory, DeviceError> {
        self.context.allocate(n_bytes as usize).map_err(|error| DeviceError::fusion_buffer(error, n_bytes))
    }

    fn launch(&self, table: &TaskTable, dtype: Dtype, prescale: f64, postscale: f64) -> Result<(), DeviceError> {
        // SAFETY: tensors are valid until the operation is complete; the engine's memory is used in its stream only.
        unsafe { self.context.launch(self.context.stream, table, dtype, Combine::Sum, prescale, postscale)? };
        Ok(())
    }

    /// Ends operations in progress, because another rank has died.
    pub fn abort(&mut self) {
        if let Ok(_current) = Current::enter(&*self.context.driver) {
            self.comm = None;
        }
    }
}

impl Drop for NcclTransport {
    fn drop(&mut self) {
        let Ok(_current) = Current::enter(&*self.context.driver) else { return };
        if self.comm.is_some()
            && let Ok(last) = self.context.record(self.context.stream)
        {
            let deadline = Instant::now() + DRAIN_TIMEOUT;
            while !last.is_complete().unwrap_or(true) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.comm = None;
    }
}

/// First element and number of elements of a member's rows in a reducescatter.
fn shard(tensor: &DeviceTensor<'_>, n: usize, member: usize) -> (u64, u64) {
    let rows = partition::split_rows(tensor.n_rows as usize, n, member);
    (rows.start as u64 * tensor.row, rows.len() as u64 * tensor.row)
}

/// Offsets of vectors in a packed buffer, and its size. Pure; the same on all members.
fn packed_offsets(lengths: impl Iterator<Item = u64>) -> (Vec<u64>, u64) {
    let mut end = 0;
    let offsets = lengths
        .map(|length| {
            let offset = end;
            end += length.next_multiple_of(ALIGNMENT);
            offset
        })
        .collect();
    (offsets, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_vectors_are_aligned_and_do_not_overlap() {
        assert_eq!(packed_offsets([4, 16, 0, 20].into_iter()), (vec![0, 16, 32, 32], 64));
        assert_eq!(packed_offsets([].into_iter()), (vec![], 0));
    }
}
