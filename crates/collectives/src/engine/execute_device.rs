//! Execution of negotiated operations on tensors in the memory of a device: allocates results, orders the engine's stream after the inputs,
//! and completes the tensors with an event. Also the way through host memory.

use std::sync::Arc;

use crate::algorithm::partition;
use crate::communicator::Communicator;
use crate::coordinator::{FusionKey, Kind};
use crate::device::context::{DeviceContext, DeviceEvent, DeviceMemory};
use crate::device::driver::{Current, DevicePtr};
use crate::device::error::DeviceError;
use crate::device::host::{HostReduction, HostTransport, TensorSpan};
use crate::device::operation::{DeviceOperation, DeviceTensor, LocalTensor};
use crate::dtype::Dtype;
use crate::engine::execute_host::{TensorOp, execute_on_host, row_bytes};
use crate::engine::handle::{Completion, DeviceOutput, Output};
use crate::engine::submission::{OutputBuffer, TensorBuffers, TensorTableEntry};
use crate::error::{Error, InvalidArgument};
use crate::op::Combine;

/// Result of one tensor.
struct TensorResult {
    shape: Vec<u64>,
    /// Alltoall: rows received from each member.
    received: Vec<u64>,
    memory: Option<DeviceMemory>,
}

/// Executes an operation with `run`, which submits it to the stream of the context.
pub fn execute(
    context: &Arc<DeviceContext>,
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    run: impl FnOnce(&mut Communicator, &DeviceOperation<'_>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let (combine, postscale) = combination(communicator, key)?;
    if communicator.size() == 1 && key.prescale == 1.0 && postscale == 1.0 && ops.iter().all(is_in_place) {
        ops.iter_mut().for_each(complete_at_once);
        return Ok(());
    }
    let _current = Current::enter(&*context.driver)?;
    let (n, me) = (communicator.size(), communicator.rank());
    let root = match key.kind {
        Kind::Broadcast => communicator.world_ranks().iter().position(|rank| *rank == key.root as usize),
        _ => Some(0),
    };
    let root = root.ok_or(InvalidArgument::Root { root: key.root as usize, size: n }).map_err(Error::from)?;
    let mut tensors = Vec::with_capacity(ops.len());
    let mut results = Vec::with_capacity(ops.len());
    for op in &*ops {
        let (mut tensor, shape) = tensor_of(op, key, n, me);
        let mut memory = None;
        if let Some(entry) = &op.entry {
            if entry.ready.is_none() {
                return Err(DeviceError::HostTensor);
            }
            let output = match entry.buffers.output {
                // As in host memory, the rows stay at their place.
                OutputBuffer::SameSize(at) if key.kind == Kind::Reducescatter => {
                    let own = partition::split_rows(tensor.n_rows as usize, n, me);
                    address(at) + own.start as u64 * tensor.row * key.dtype.size() as u64
                }
                OutputBuffer::SameSize(at) => address(at),
                OutputBuffer::Gathered(..) | OutputBuffer::Allocate => {
                    let n_bytes = tensor.output_bytes;
                    let allocated = context.allocate(n_bytes as usize);
                    let allocated = allocated.map_err(|error| DeviceError::result(error, n_bytes))?;
                    memory.insert(allocated).ptr()
                }
            };
            tensor.local = Some(LocalTensor { input: address(entry.buffers.input), output });
        }
        tensors.push(tensor);
        let received = if key.kind == Kind::Alltoall { op.tensor.response.rows.clone() } else { Vec::new() };
        results.push(TensorResult { shape, received, memory });
    }
    let ready = ops.iter().filter_map(|op| op.entry.as_ref()?.ready.clone()).collect();
    let operation = DeviceOperation {
        kind: key.kind,
        dtype: key.dtype,
        combine,
        prescale: key.prescale,
        postscale,
        root,
        tensors,
        ready,
    };
    run(communicator, &operation)?;
    drop(operation);
    let done = context.record(context.stream)?;
    for (op, result) in ops.iter_mut().zip(results) {
        complete(op, result, &done);
    }
    Ok(())
}

/// Whether the result of a single rank is its input.
fn is_in_place(op: &TensorOp<'_>) -> bool {
    op.entry.as_ref().is_some_and(|entry| match entry.buffers.output {
        OutputBuffer::SameSize(at) => std::ptr::eq(at, entry.buffers.input) && entry.ready.is_some(),
        OutputBuffer::Gathered(..) | OutputBuffer::Allocate => false,
    })
}

/// Completes a tensor whose result is its input, which is there when it is ready.
fn complete_at_once(op: &mut TensorOp<'_>) {
    let Some(done) = op.entry.as_ref().and_then(|entry| entry.ready.clone()) else { return };
    let shape = op.tensor.response.shape.clone();
    complete(op, TensorResult { shape, received: Vec::new(), memory: None }, &done);
}

fn address<T>(pointer: *const T) -> DevicePtr {
    pointer.expose_provenance() as DevicePtr
}

/// How elements are combined, and the factor of the result.
fn combination(communicator: &Communicator, key: FusionKey) -> Result<(Combine, f64), Error> {
    match key.kind {
        Kind::Allreduce | Kind::Reducescatter => {
            let reduction = communicator.reduction(key.dtype, key.op, key.postscale)?;
            check_scaling(key)?;
            Ok((reduction.combine, reduction.factor))
        }
        Kind::Adasum => {
            communicator.check_adasum(key.dtype)?;
            Ok((Combine::Sum, key.postscale))
        }
        _ => Ok((Combine::Sum, 1.0)),
    }
}

fn check_scaling(key: FusionKey) -> Result<(), InvalidArgument> {
    if key.prescale != 1.0 && key.dtype == Dtype::Bool {
        return Err(InvalidArgument::Unsupported { op: "scaling", dtype: key.dtype.name() });
    }
    Ok(())
}

/// Sizes of a tensor without its addresses, and the shape of its result.
fn tensor_of<'a>(op: &TensorOp<'a>, key: FusionKey, n: usize, me: usize) -> (DeviceTensor<'a>, Vec<u64>) {
    let response = &op.tensor.response;
    let row_bytes = row_bytes(&response.shape, key) as u64;
    let n_rows = response.shape.first().copied().unwrap_or(1);
    let all_bytes = op.n_bytes as u64;
    let mut shape = response.shape.clone();
    let (input_bytes, output_bytes) = match key.kind {
        Kind::Allgather => (response.rows[me] * row_bytes, response.rows.iter().sum::<u64>() * row_bytes),
        Kind::Alltoall => {
            (op.tensor.splits.iter().sum::<u64>() * row_bytes, response.rows.iter().sum::<u64>() * row_bytes)
        }
        Kind::Reducescatter => {
            let own = partition::split_rows(n_rows as usize, n, me).len() as u64;
            if let Some(first) = shape.first_mut() {
                *first = own;
            }
            (all_bytes, own * row_bytes)
        }
        _ => (all_bytes, all_bytes),
    };
    let tensor = DeviceTensor {
        rows: if matches!(key.kind, Kind::Allgather | Kind::Alltoall) { &response.rows } else { &[] },
        splits: if key.kind == Kind::Alltoall { &op.tensor.splits } else { &[] },
        n_elements: all_bytes / key.dtype.size() as u64,
        n_rows,
        row: row_bytes / key.dtype.size() as u64,
        input_bytes,
        output_bytes,
        local: None,
    };
    (tensor, shape)
}

/// Completes a tensor; its result is there when the event is complete.
fn complete(op: &mut TensorOp<'_>, result: TensorResult, done: &Arc<DeviceEvent>) {
    let Some(entry) = op.entry.take() else { return };
    let TensorResult { shape, received, memory } = result;
    let device = Some(Arc::new(DeviceOutput { memory, done: done.clone() }));
    entry.completion.complete_one(Ok(()), |outcome| {
        outcome.outputs[entry.index] = Output { bytes: Vec::new(), shape, received, device };
    });
}

/// Executes an operation through host memory.
pub fn through_host(
    transport: &mut HostTransport,
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), DeviceError> {
    let Some(context) = transport.context().cloned() else {
        if key.kind == Kind::Allreduce {
            return allreduce_through_host(transport, communicator, key, ops, None);
        }
        return Ok(execute_on_host(communicator, key, ops, fusion_buffer)?);
    };
    if key.kind == Kind::Allreduce {
        check_on_device(ops)?;
        let _current = Current::enter(&*context.driver)?;
        context.wait_all(context.stream, ops.iter().filter_map(|op| op.entry.as_ref()?.ready.as_ref()))?;
        return allreduce_through_host(transport, communicator, key, ops, Some(&context));
    }
    through_copies(&context, communicator, key, ops, fusion_buffer)
}

/// Executes an operation on copies in host memory, as other members execute it on theirs.
pub fn through_copies(
    context: &Arc<DeviceContext>,
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), DeviceError> {
    let _current = Current::enter(&*context.driver)?;
    context.wait_all(context.stream, ops.iter().filter_map(|op| op.entry.as_ref()?.ready.as_ref()))?;
    let mut staged = stage(context, ops)?;
    execute_on_host(communicator, key, &mut staged.ops, fusion_buffer)?;
    staged.finish(context, ops)
}

/// Whether all tensors of this rank are in device memory.
fn check_on_device(ops: &[TensorOp<'_>]) -> Result<(), DeviceError> {
    let mut entries = ops.iter().filter_map(|op| op.entry.as_ref());
    if entries.any(|entry| entry.ready.is_none()) { Err(DeviceError::HostTensor) } else { Ok(()) }
}

fn allreduce_through_host(
    transport: &mut HostTransport,
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    context: Option<&Arc<DeviceContext>>,
) -> Result<(), DeviceError> {
    let reduction = communicator.reduction(key.dtype, key.op, key.postscale).map_err(Error::from)?;
    check_scaling(key).map_err(Error::from)?;
    let mut results = Vec::with_capacity(ops.len());
    let mut spans = Vec::with_capacity(ops.len());
    for op in &*ops {
        let mut result = TensorResult { shape: op.tensor.response.shape.clone(), received: Vec::new(), memory: None };
        let mut bytes = Vec::new();
        let addresses = match &op.entry {
            None => None,
            Some(entry) => match (entry.buffers.output, context) {
                (OutputBuffer::SameSize(at), _) => Some((address(entry.buffers.input), address(at))),
                (OutputBuffer::Gathered(..) | OutputBuffer::Allocate, Some(context)) => {
                    let memory = context.allocate(op.n_bytes);
                    let memory = memory.map_err(|error| DeviceError::result(error, op.n_bytes as u64))?;
                    Some((address(entry.buffers.input), result.memory.insert(memory).ptr()))
                }
                (OutputBuffer::Gathered(..) | OutputBuffer::Allocate, None) => {
                    bytes.resize(op.n_bytes, 0u8);
                    Some((address(entry.buffers.input), address(bytes.as_mut_ptr())))
                }
            },
        };
        spans.push(TensorSpan { addresses, n_bytes: op.n_bytes });
        results.push((result, bytes));
    }
    let reduction = HostReduction { dtype: key.dtype, prescale: key.prescale, reduction };
    transport.allreduce(communicator, &spans, reduction)?;
    match context {
        Some(context) => {
            let done = context.record(context.stream)?;
            ops.iter_mut().zip(results).for_each(|(op, (result, _))| complete(op, result, &done));
        }
        None => {
            for (op, (result, bytes)) in ops.iter_mut().zip(results) {
                let Some(entry) = op.entry.take() else { continue };
                let output = Output { bytes, shape: result.shape, received: Vec::new(), device: None };
                entry.completion.complete_one(Ok(()), |outcome| outcome.outputs[entry.index] = output);
            }
        }
    }
    Ok(())
}

/// Copies in host memory of an operation's tensors.
struct Staged<'a> {
    ops: Vec<TensorOp<'a>>,
    /// Of each operation with an entry: the copy, and its own completion.
    copies: Vec<Option<(Vec<u8>, Arc<Completion>)>>,
}

/// Copies the inputs to host memory, and waits for the copies.
fn stage<'a>(context: &Arc<DeviceContext>, ops: &[TensorOp<'a>]) -> Result<Staged<'a>, DeviceError> {
    check_on_device(ops)?;
    let mut staged = Staged { ops: Vec::new(), copies: Vec::new() };
    for op in ops {
        let Some(entry) = &op.entry else {
            staged.ops.push(TensorOp { tensor: op.tensor, entry: None, n_bytes: op.n_bytes });
            staged.copies.push(None);
            continue;
        };
        let n_bytes = entry.buffers.n_bytes;
        let mut copy = vec![0u8; n_bytes];
        // SAFETY: the input has this size, and the copy is waited for below, or by the driver if it is not pinned.
        unsafe {
            if n_bytes > 0 {
                context.driver.copy_to_host(
                    context.stream,
                    copy.as_mut_ptr(),
                    address(entry.buffers.input),
                    n_bytes,
                )?;
            }
        }
        let output = match entry.buffers.output {
            OutputBuffer::SameSize(_) => OutputBuffer::SameSize(copy.as_mut_ptr()),
            OutputBuffer::Gathered(..) | OutputBuffer::Allocate => OutputBuffer::Allocate,
        };
        let completion = Completion::new(1);
        let buffers = TensorBuffers { input: copy.as_ptr(), n_bytes, output };
        let entry = TensorTableEntry { buffers, completion: completion.clone(), index: 0, owner: None, ready: None };
        staged.ops.push(TensorOp { tensor: op.tensor, entry: Some(entry), n_bytes: op.n_bytes });
        staged.copies.push(Some((copy, completion)));
    }
    context.record(context.stream)?.synchronize()?;
    Ok(staged)
}

impl Staged<'_> {
    /// Copies the results to the device and completes the tensors.
    fn finish(self, context: &Arc<DeviceContext>, ops: &mut [TensorOp<'_>]) -> Result<(), DeviceError> {
        let mut results = Vec::with_capacity(ops.len());
        for (op, copy) in ops.iter_mut().zip(self.copies) {
            let Some((copy, completion)) = copy else {
                results.push(None);
                continue;
            };
            let output = match completion.take_outcome() {
                Ok(mut outcome) => outcome.outputs.remove(0),
                Err(error) => {
                    crate::engine::execute_host::fail_op(op, error);
                    results.push(None);
                    continue;
                }
            };
            let target = op.entry.as_ref().map(|entry| entry.buffers.output);
            let (bytes, to, memory) = match target {
                Some(OutputBuffer::SameSize(at)) => (&copy, address(at), None),
                _ => {
                    let n_bytes = output.bytes.len();
                    let memory = context.allocate(n_bytes);
                    let memory = memory.map_err(|error| DeviceError::result(error, n_bytes as u64))?;
                    (&output.bytes, memory.ptr(), Some(memory))
                }
            };
            if !bytes.is_empty() {
                // SAFETY: the destination has as many bytes. Memory that is not pinned is copied before the call returns.
                unsafe { context.driver.copy_to_device(context.stream, to, bytes.as_ptr(), bytes.len())? };
            }
            results.push(Some(TensorResult { shape: output.shape, received: output.received, memory }));
        }
        let done = context.record(context.stream)?;
        for (op, result) in ops.iter_mut().zip(results) {
            if let Some(result) = result {
                complete(op, result, &done);
            }
        }
        Ok(())
    }
}
