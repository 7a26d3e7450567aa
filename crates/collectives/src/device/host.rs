//! Operations through pinned host memory, where ranks can neither share a GPU's memory nor use NCCL. An allreduce is divided into pieces, so
//! that copies to the host, reductions there and copies back overlap. A rank whose tensors are in host memory takes part, too.

use std::ops::Range;
use std::sync::Arc;

use crate::algorithm::{Buffers, Reduction};
use crate::communicator::Communicator;
use crate::device::context::{DeviceContext, DeviceEvent};
use crate::device::driver::{Current, DevicePtr, HostMemory};
use crate::device::error::DeviceError;
use crate::dtype::Dtype;
use crate::error::InvalidArgument;
use crate::reduce;

/// Bytes of a piece: large enough for full bandwidth, small enough to overlap.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes of the pinned buffer for allreduces; longer ones use it several times.
const WINDOW_BYTES: usize = 64 << 20;

/// Buffers of one process set.
pub struct HostTransport {
    /// `None`: the tensors of this rank are in host memory.
    context: Option<Arc<DeviceContext>>,
    window: Option<HostMemory>,
    /// Event after the last copy from the window.
    in_use: Option<Arc<DeviceEvent>>,
    /// The window of a rank without a device.
    plain: Vec<u8>,
}

/// Input and output of one tensor: device memory, or host memory on a rank without a device. `None` for a rank that has joined.
#[derive(Clone, Copy, Debug)]
pub struct TensorSpan {
    pub addresses: Option<(DevicePtr, DevicePtr)>,
    pub n_bytes: usize,
}

/// Part of a tensor in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    tensor: usize,
    /// Offset in the tensor.
    offset: usize,
    /// Offset in the window.
    at: usize,
    n_bytes: usize,
}

/// Scaling of an allreduce, besides its reduction.
#[derive(Clone, Copy, Debug)]
pub struct HostReduction {
    pub dtype: Dtype,
    pub prescale: f64,
    pub reduction: Reduction,
}

impl HostTransport {
    pub fn new(context: Option<Arc<DeviceContext>>) -> HostTransport {
        HostTransport { context, window: None, in_use: None, plain: Vec::new() }
    }

    pub fn context(&self) -> Option<&Arc<DeviceContext>> {
        self.context.as_ref()
    }

    /// A rank that had joined, or passed host memory, passes memory of a device from now on.
    pub fn use_device(&mut self, context: Option<&Arc<DeviceContext>>) {
        if self.context.is_none() {
            self.context = context.cloned();
        }
    }

    /// Allreduce of tensors, in order. On return the results are in the outputs, for a rank with a device after the work in its stream.
    pub fn allreduce(
        &mut self,
        communicator: &mut Communicator,
        tensors: &[TensorSpan],
        reduction: HostReduction,
    ) -> Result<(), DeviceError> {
        let lengths: Vec<usize> = tensors.iter().map(|tensor| tensor.n_bytes).collect();
        for window in windows(&lengths, WINDOW_BYTES) {
            self.allreduce_window(communicator, tensors, &window, reduction)?;
        }
        Ok(())
    }

    fn allreduce_window(
        &mut self,
        communicator: &mut Communicator,
        tensors: &[TensorSpan],
        window: &[Segment],
        reduction: HostReduction,
    ) -> Result<(), DeviceError> {
        let base = self.begin_window()?;
        let pieces = pieces(window, PIECE_BYTES);
        let mut arrived: Vec<Option<Arc<DeviceEvent>>> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            for segment in &window[piece.clone()] {
                // SAFETY: the segment lies in the tensor and in the window.
                unsafe { self.copy_in(tensors, segment, base)? };
            }
            arrived.push(self.record()?);
        }
        for (piece, arrived) in pieces.into_iter().zip(arrived) {
            if let Some(arrived) = arrived {
                arrived.synchronize()?;
            }
            let segments = &window[piece];
            let (first, last) = (segments[0], segments[segments.len() - 1]);
            let n_bytes = last.at + last.n_bytes - first.at;
            let at = base.wrapping_add(first.at);
            // SAFETY: the piece lies in the window, which only this operation uses now.
            unsafe {
                let data = std::slice::from_raw_parts_mut(at, n_bytes);
                let refused = |_| InvalidArgument::Unsupported { op: "scaling", dtype: reduction.dtype.name() };
                reduce::scale(reduction.dtype, reduction.prescale, data)
                    .map_err(refused)
                    .map_err(crate::Error::from)?;
                communicator.allreduce_raw(Buffers { src: at, dst: at }, n_bytes, reduction.reduction)?;
                for segment in segments {
                    self.copy_out(tensors, segment, base)?;
                }
            }
        }
        self.in_use = self.record()?;
        Ok(())
    }

    /// The window, when earlier copies from it are complete.
    fn begin_window(&mut self) -> Result<*mut u8, DeviceError> {
        let Some(context) = &self.context else {
            self.plain.resize(WINDOW_BYTES, 0);
            return Ok(self.plain.as_mut_ptr());
        };
        if let Some(in_use) = self.in_use.take() {
            in_use.synchronize()?;
        }
        let _current = Current::enter(&*context.driver)?;
        let window = match self.window {
            Some(window) => window,
            None => {
                let window = context.driver.allocate_host(WINDOW_BYTES);
                *self.window.insert(window.map_err(|error| DeviceError::fusion_buffer(error, WINDOW_BYTES as u64))?)
            }
        };
        Ok(window.host)
    }

    fn record(&self) -> Result<Option<Arc<DeviceEvent>>, DeviceError> {
        Ok(self.context.as_ref().map(|context| context.record(context.stream)).transpose()?)
    }

    /// # Safety
    /// The segment must lie in its tensor and in the window at `base`.
    unsafe fn copy_in(&self, tensors: &[TensorSpan], segment: &Segment, base: *mut u8) -> Result<(), DeviceError> {
        let to = base.wrapping_add(segment.at);
        // SAFETY: both ranges are valid by the function's contract; zeros for a rank that has joined.
        unsafe {
            match (tensors[segment.tensor].addresses, &self.context) {
                (None, _) => std::ptr::write_bytes(to, 0, segment.n_bytes),
                (Some((input, _)), None) => {
                    let from: *const u8 = std::ptr::with_exposed_provenance(input as usize + segment.offset);
                    std::ptr::copy_nonoverlapping(from, to, segment.n_bytes);
                }
                (Some((input, _)), Some(context)) => {
                    let from = input + segment.offset as u64;
                    let _current = Current::enter(&*context.driver)?;
                    context.driver.copy_to_host(context.stream, to, from, segment.n_bytes)?;
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`HostTransport::copy_in`].
    unsafe fn copy_out(&self, tensors: &[TensorSpan], segment: &Segment, base: *mut u8) -> Result<(), DeviceError> {
        let from = base.wrapping_add(segment.at);
        let Some((_, output)) = tensors[segment.tensor].addresses else { return Ok(()) };
        // SAFETY: both ranges are valid by the function's contract.
        unsafe {
            match &self.context {
                None => {
                    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(output as usize + segment.offset);
                    std::ptr::copy_nonoverlapping(from, to, segment.n_bytes);
                }
                Some(context) => {
                    let _current = Current::enter(&*context.driver)?;
                    let to = output + segment.offset as u64;
                    context.driver.copy_to_device(context.stream, to, from, segment.n_bytes)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for HostTransport {
    fn drop(&mut self) {
        let (Some(context), Some(window)) = (&self.context, self.window.take()) else { return };
        if let Some(in_use) = self.in_use.take() {
            let _ = in_use.synchronize();
        }
        if let Ok(_current) = Current::enter(&*context.driver) {
            context.driver.free_host(window);
        }
    }
}

/// Divides tensors of these lengths into windows of at most `window` bytes. Pure; the same on all ranks.
fn windows(lengths: &[usize], window: usize) -> Vec<Vec<Segment>> {
    let mut all: Vec<Vec<Segment>> = Vec::new();
    let mut at = window;
    for (tensor, &length) in lengths.iter().enumerate() {
        let mut offset = 0;
        while offset < length {
            if at == window {
                all.push(Vec::new());
                at = 0;
            }
            let n_bytes = (length - offset).min(window - at).min(PIECE_BYTES);
            all.last_mut().expect("one was pushed").push(Segment { tensor, offset, at, n_bytes });
            offset += n_bytes;
            at += n_bytes;
        }
    }
    all
}

/// Divides a window into pieces of at least `piece` bytes, but for the last, as ranges of segments. Pure.
fn pieces(window: &[Segment], piece: usize) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let (mut start, mut n_bytes) = (0, 0);
    for (index, segment) in window.iter().enumerate() {
        n_bytes += segment.n_bytes;
        if n_bytes >= piece || index + 1 == window.len() {
            all.push(start..index + 1);
            (start, n_bytes) = (index + 1, 0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_all_tensors_in_order() {
        let lengths = [0, 8, 3 * PIECE_BYTES, 16, 5 * PIECE_BYTES];
        let windows = windows(&lengths, 4 * PIECE_BYTES);
        let mut covered = [0; 5];
        for window in &windows {
            let mut at = 0;
            for segment in window {
                assert_eq!((segment.at, segment.offset), (at, covered[segment.tensor]));
                at += segment.n_bytes;
                covered[segment.tensor] += segment.n_bytes;
            }
            assert!(at <= 4 * PIECE_BYTES);
        }
        assert_eq!((covered, windows.len()), (lengths, 3));
    }

    #[test]
    fn pieces_are_consecutive_segments() {
        let windows = windows(&[PIECE_BYTES / 2; 5], 4 * PIECE_BYTES);
        assert_eq!(pieces(&windows[0], PIECE_BYTES), [0..2, 2..4, 4..5]);
        assert_eq!(pieces(&[], PIECE_BYTES), Vec::<Range<usize>>::new());
    }
}
