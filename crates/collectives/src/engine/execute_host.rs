//! Execution of operations on tensors in host memory: packs small tensors into the fusion buffer, contributes zeros if this rank has joined,
//! allocates results.

use std::ops::Range;

use crate::algorithm::{Buffers, partition};
use crate::communicator::Communicator;
use crate::communicator::typed::contiguous_ranges;
use crate::coordinator::{FusionKey, Kind, NegotiatedTensor};
use crate::engine::handle::{EngineError, Output};
use crate::engine::submission::{OutputBuffer, TensorTableEntry};
use crate::error::{Error, InvalidArgument};
use crate::reduce;

/// One tensor of an operation. `entry` is `None` if this rank has joined and contributes zeros.
pub(super) struct TensorOp<'a> {
    pub tensor: &'a NegotiatedTensor,
    pub entry: Option<TensorTableEntry>,
    pub n_bytes: usize,
}

/// Executes an operation on tensors in host memory.
pub(super) fn execute_on_host(
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    match key.kind {
        Kind::Allreduce => allreduce(communicator, key, ops, fusion_buffer),
        Kind::Adasum => adasum(communicator, key, ops, fusion_buffer),
        Kind::Allgather => ops.iter_mut().try_for_each(|op| allgather(communicator, key, op)),
        Kind::Broadcast => ops.iter_mut().try_for_each(|op| broadcast(communicator, key, op)),
        Kind::Alltoall => ops.iter_mut().try_for_each(|op| alltoall(communicator, key, op)),
        Kind::Reducescatter => ops.iter_mut().try_for_each(|op| reducescatter(communicator, key, op, fusion_buffer)),
        Kind::Join | Kind::Barrier => Ok(()),
    }
}

/// Fails one tensor, unless it is complete.
pub(super) fn fail_op(op: &mut TensorOp<'_>, error: EngineError) {
    if let Some(entry) = op.entry.take() {
        entry.completion.complete_one(Err(error), |_| {});
    }
}

/// Completes one tensor. `bytes` is the result if it is not in the caller's buffer.
fn complete(op: &mut TensorOp<'_>, bytes: Option<Vec<u8>>, shape: &[u64], received: &[u64]) {
    let Some(entry) = op.entry.take() else { return };
    let index = entry.index;
    entry.completion.complete_one(Ok(()), |outcome| {
        let output = &mut outcome.outputs[index];
        let (bytes, shape, received) = (bytes.unwrap_or_default(), shape.to_vec(), received.to_vec());
        *output = Output { bytes, shape, received, device: None };
    });
}

fn allreduce(
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let reduction = communicator.reduction(key.dtype, key.op, key.postscale)?;
    let mut start = 0;
    while start < ops.len() {
        let end = start + partition::fused_run_len(ops[start..].iter().map(|op| op.n_bytes));
        let batch = &mut ops[start..end];
        let n_bytes = batch.iter().map(|op| op.n_bytes).sum();
        let buffers = match &*batch {
            [TensorOp { entry: Some(entry), .. }] => unfused_buffers(entry),
            _ => None,
        };
        match buffers {
            Some(mut buffers) => {
                // SAFETY: the batch is one tensor. `Engine::submit` requires that its input and output hold `n_bytes` and stay valid until
                // the operation is complete, which it is not yet.
                unsafe {
                    if key.prescale != 1.0 {
                        buffers.copy_input_to_output(n_bytes);
                        buffers.src = buffers.dst;
                        scale(key, std::slice::from_raw_parts_mut(buffers.dst, n_bytes))?;
                    }
                    communicator.allreduce_raw(buffers, n_bytes, reduction)?;
                }
                complete_with_result(&mut batch[0], None);
            }
            None => {
                pack_fusion_buffer(batch, fusion_buffer);
                scale(key, fusion_buffer)?;
                let at = fusion_buffer.as_mut_ptr();
                // SAFETY: source and destination are the fusion buffer, which has `n_bytes` after packing.
                unsafe { communicator.allreduce_raw(Buffers { src: at, dst: at }, n_bytes, reduction)? };
                unpack_fusion_buffer(batch, fusion_buffer);
            }
        }
        start = end;
    }
    Ok(())
}

/// Buffers for executing a single tensor in place, without the fusion buffer. `None` if the result is to be allocated.
fn unfused_buffers(entry: &TensorTableEntry) -> Option<Buffers> {
    match entry.buffers.output {
        OutputBuffer::SameSize(dst) => Some(Buffers { src: entry.buffers.input, dst }),
        OutputBuffer::Gathered(..) | OutputBuffer::Allocate => None,
    }
}

/// Copies the inputs of a batch into the fusion buffer; zeros for tensors without an entry.
fn pack_fusion_buffer(batch: &[TensorOp<'_>], fusion_buffer: &mut Vec<u8>) {
    fusion_buffer.clear();
    for op in batch {
        match &op.entry {
            // SAFETY: `Engine::submit` requires that the input holds the `n_bytes` of the request's shape until the operation is complete.
            Some(entry) => fusion_buffer.extend_from_slice(unsafe { input_bytes(entry, op.n_bytes) }),
            None => fusion_buffer.resize(fusion_buffer.len() + op.n_bytes, 0),
        }
    }
}

/// Copies the results of a batch from the fusion buffer to their outputs and completes the tensors.
fn unpack_fusion_buffer(batch: &mut [TensorOp<'_>], fusion_buffer: &[u8]) {
    let mut rest = fusion_buffer;
    for op in batch {
        let (own, after) = rest.split_at(op.n_bytes);
        rest = after;
        complete_with_result(op, Some(own));
    }
}

/// Completes one tensor whose result is `result`, or is already in the output if `None`.
fn complete_with_result(op: &mut TensorOp<'_>, result: Option<&[u8]>) {
    let target = op.entry.as_ref().map(|entry| entry.buffers.output);
    let response = op.tensor.response.clone();
    match (target, result) {
        (Some(OutputBuffer::SameSize(dst)), Some(result)) => {
            // SAFETY: `Engine::submit` requires that the output holds as many bytes as the input, which is the length of `result`. The fusion
            // buffer does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(result.as_ptr(), dst, result.len()) };
            complete(op, None, &response.shape, &[]);
        }
        (Some(OutputBuffer::Gathered(..) | OutputBuffer::Allocate), Some(result)) => {
            complete(op, Some(result.to_vec()), &response.shape, &[])
        }
        _ => complete(op, None, &response.shape, &[]),
    }
}

/// Input of a tensor.
///
/// # Safety
/// The entry's input must point to `n_bytes` readable bytes that stay valid and unchanged while the slice is used.
unsafe fn input_bytes(entry: &TensorTableEntry, n_bytes: usize) -> &[u8] {
    if n_bytes == 0 {
        return &[];
    }
    // SAFETY: the function's contract guarantees `n_bytes` readable bytes at this address, and 0 bytes are handled above.
    unsafe { std::slice::from_raw_parts(entry.buffers.input, n_bytes) }
}

fn scale(key: FusionKey, data: &mut [u8]) -> Result<(), Error> {
    let refused = |_| InvalidArgument::Unsupported { op: "scaling", dtype: key.dtype.name() };
    Ok(reduce::scale(key.dtype, key.prescale, data).map_err(refused)?)
}

fn adasum(
    communicator: &mut Communicator,
    key: FusionKey,
    ops: &mut [TensorOp<'_>],
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    communicator.check_adasum(key.dtype)?;
    pack_fusion_buffer(ops, fusion_buffer);
    scale(key, fusion_buffer)?;
    let lengths: Vec<usize> = ops.iter().map(|op| op.n_bytes).collect();
    let ranges = contiguous_ranges(&lengths, 1);
    // SAFETY: the ranges are consecutive parts of the fusion buffer, which has the sum of their lengths after packing.
    unsafe { communicator.adasum_raw(fusion_buffer.as_mut_ptr(), &ranges, key.dtype)? };
    scale(FusionKey { prescale: key.postscale, ..key }, fusion_buffer)?;
    unpack_fusion_buffer(ops, fusion_buffer);
    Ok(())
}

fn allgather(communicator: &mut Communicator, key: FusionKey, op: &mut TensorOp<'_>) -> Result<(), Error> {
    let response = op.tensor.response.clone();
    let row_bytes = row_bytes(&response.shape, key);
    let parts = row_parts(&response.rows, row_bytes);
    let n_bytes = parts.last().map_or(0, |part| part.end);
    let own = parts[communicator.rank()].clone();
    let Some(entry) = &op.entry else { return Ok(()) };
    let mut output: Vec<u8> = Vec::new();
    // A rank whose buffer has the wrong size still takes part, because the other ranks depend on it.
    let (dst, fits) = match entry.buffers.output {
        OutputBuffer::Gathered(at, capacity) if capacity == n_bytes => (at, true),
        target => {
            output.reserve_exact(n_bytes);
            (output.as_mut_ptr(), !matches!(target, OutputBuffer::Gathered(..)))
        }
    };
    let buffers = Buffers { src: entry.buffers.input.wrapping_sub(own.start), dst };
    // SAFETY: `dst` has `n_bytes`, the sum of all parts: the caller's buffer of exactly that size or the reserved vector. `src` is offset so
    // that this rank's part is the input, which holds that part (`Engine::submit`).
    unsafe { communicator.allgather_raw(buffers, &parts)? };
    if !fits {
        // Only this rank's call fails; the engine stays usable.
        let refused = EngineError::Failed(InvalidArgument::TooLarge { n_bytes }.to_string().into());
        fail_op(op, refused);
        return Ok(());
    }
    if dst == output.as_mut_ptr() {
        // SAFETY: `n_bytes` were reserved and the allgather has written all parts.
        unsafe { output.set_len(n_bytes) };
    }
    complete(op, Some(output), &response.shape, &[]);
    Ok(())
}

fn broadcast(communicator: &mut Communicator, key: FusionKey, op: &mut TensorOp<'_>) -> Result<(), Error> {
    let root = communicator.world_ranks().iter().position(|rank| *rank == key.root as usize);
    let root = root.ok_or(InvalidArgument::Root { root: key.root as usize, size: communicator.size() })?;
    let Some(entry) = &op.entry else { return Ok(()) };
    let n_bytes = op.n_bytes;
    let is_root = communicator.rank() == root;
    let mut fresh: Vec<u8> = Vec::new();
    let dst = match entry.buffers.output {
        OutputBuffer::SameSize(dst) => dst,
        OutputBuffer::Gathered(..) | OutputBuffer::Allocate => {
            fresh.resize(n_bytes, 0);
            fresh.as_mut_ptr()
        }
    };
    // SAFETY: `Engine::submit` requires that input and output hold `n_bytes` and are either the same buffer or disjoint; an allocated output
    // has `n_bytes` too.
    unsafe {
        if is_root {
            Buffers { src: entry.buffers.input, dst }.copy_input_to_output(n_bytes);
        }
        communicator.broadcast_raw(dst, n_bytes, root)?;
    }
    let shape = op.tensor.response.shape.clone();
    complete(op, Some(fresh), &shape, &[]);
    Ok(())
}

fn alltoall(communicator: &mut Communicator, key: FusionKey, op: &mut TensorOp<'_>) -> Result<(), Error> {
    let response = op.tensor.response.clone();
    let row_bytes = row_bytes(&response.shape, key);
    let (sent, received) = (row_parts(&op.tensor.splits, row_bytes), row_parts(&response.rows, row_bytes));
    let n_bytes = received.last().map_or(0, |part| part.end);
    let mut output: Vec<u8> = Vec::with_capacity(n_bytes);
    let Some(entry) = &op.entry else { return Ok(()) };
    // SAFETY: the worker has checked that the sum of the splits does not exceed the input's rows. The output's capacity is the sum of the
    // received parts, all of which are written before its length is set.
    unsafe {
        communicator.alltoall_raw(entry.buffers.input, &sent, output.as_mut_ptr(), &received)?;
        output.set_len(n_bytes);
    }
    complete(op, Some(output), &response.shape, &response.rows);
    Ok(())
}

fn reducescatter(
    communicator: &mut Communicator,
    key: FusionKey,
    op: &mut TensorOp<'_>,
    fusion_buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let reduction = communicator.reduction(key.dtype, key.op, key.postscale)?;
    let response = op.tensor.response.clone();
    let row_bytes = row_bytes(&response.shape, key);
    let n_rows = response.shape.first().copied().unwrap_or(0) as usize;
    let rows = |member| partition::split_rows(n_rows, communicator.size(), member);
    let parts: Vec<Range<usize>> =
        (0..communicator.size()).map(rows).map(|rows| rows.start * row_bytes..rows.end * row_bytes).collect();
    let own = rows(communicator.rank());
    let Some(entry) = &op.entry else { return Ok(()) };
    let mut input = entry.buffers.input;
    if key.prescale != 1.0 {
        pack_fusion_buffer(std::slice::from_ref(op), fusion_buffer);
        scale(key, fusion_buffer)?;
        input = fusion_buffer.as_ptr();
    }
    let mut output: Vec<u8> = Vec::new();
    let out = match entry.buffers.output {
        OutputBuffer::SameSize(all) => all.wrapping_add(own.start * row_bytes),
        OutputBuffer::Gathered(..) | OutputBuffer::Allocate => {
            output.resize(own.len() * row_bytes, 0);
            output.as_mut_ptr()
        }
    };
    // SAFETY: the input holds all rows (`Engine::submit`, or the packed fusion buffer). The output has room for this rank's rows: in the
    // caller's buffer, which is as large as the input, or in the allocated vector.
    unsafe { communicator.reducescatter_raw(input, out, &parts, reduction)? };
    let mut shape = response.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = own.len() as u64;
    }
    complete(op, Some(output), &shape, &[]);
    Ok(())
}

/// Bytes of one row, a slice along the first dimension.
pub(super) fn row_bytes(shape: &[u64], key: FusionKey) -> usize {
    shape.iter().skip(1).product::<u64>() as usize * key.dtype.size()
}

/// Byte ranges of consecutive parts with these numbers of rows.
pub(super) fn row_parts(rows: &[u64], row_bytes: usize) -> Vec<Range<usize>> {
    let rows: Vec<usize> = rows.iter().map(|rows| *rows as usize).collect();
    contiguous_ranges(&rows, row_bytes)
}
