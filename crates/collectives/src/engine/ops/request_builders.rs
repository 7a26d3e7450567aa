//! Conversion between typed API arguments and the engine's data: requests, buffers, and results as elements. Pure.

use crate::coordinator::{Kind, Request, SetId, SubmitError};
use crate::dtype::{Dtype, Element, bytes_of, bytes_of_mut};
use crate::engine::handle::Output;
use crate::engine::ops::Reduce;
use crate::engine::submission::{OutputBuffer, TensorBuffers};
use crate::op::ReduceOp;

/// Request without reduction.
pub fn base_request(name: &str, kind: Kind, dtype: Dtype, shape: Vec<u64>, set: SetId) -> Request {
    Request {
        set,
        kind,
        name: name.into(),
        dtype,
        shape,
        root: 0,
        device: -1,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}

/// Allreduce or Adasum of this many elements.
pub fn allreduce_request(name: &str, dtype: Dtype, n_elements: usize, reduce: Reduce) -> Request {
    let kind = if reduce.op == ReduceOp::Adasum { Kind::Adasum } else { Kind::Allreduce };
    let Reduce { op, prescale, postscale, set } = reduce;
    Request { op, prescale, postscale, ..base_request(name, kind, dtype, vec![n_elements as u64], set) }
}

/// Reducescatter of whole rows; an error if the elements are not a multiple of `row`.
pub fn reducescatter_request<T: Element>(
    name: &str,
    data: &[T],
    row: usize,
    reduce: Reduce,
) -> Result<Request, SubmitError> {
    let n_elements = data.len();
    let n_rows = n_elements.checked_div(row).unwrap_or(0);
    if n_rows * row != n_elements {
        return Err(SubmitError::PartialRows { n_elements, row });
    }
    let shape = vec![n_rows as u64, row as u64];
    Ok(Request { kind: Kind::Reducescatter, shape, ..allreduce_request(name, T::DTYPE, n_elements, reduce) })
}

/// Allgather along the first dimension.
pub fn allgather_request<T: Element>(name: &str, data: &[T], set: SetId) -> Request {
    base_request(name, Kind::Allgather, T::DTYPE, vec![data.len() as u64], set)
}

/// Broadcast from a global rank.
pub fn broadcast_request<T: Element>(name: &str, data: &[T], root: u32, set: SetId) -> Request {
    Request { root, ..base_request(name, Kind::Broadcast, T::DTYPE, vec![data.len() as u64], set) }
}

/// Alltoall with these splits.
pub fn alltoall_request<T: Element>(name: &str, data: &[T], splits: &[u64], set: SetId) -> Request {
    Request { splits: splits.to_vec(), ..base_request(name, Kind::Alltoall, T::DTYPE, vec![data.len() as u64], set) }
}

/// Names of a group's tensors, as in Horovod.
pub fn group_names(base: &str, n: usize) -> impl Iterator<Item = String> {
    (1..=n).map(move |index| format!("{base}_{index}of{n}"))
}

/// Buffers of an in-place operation.
pub fn in_place_buffers<T: Element>(data: &mut [T]) -> TensorBuffers {
    let bytes = bytes_of_mut(data);
    TensorBuffers { input: bytes.as_ptr(), n_bytes: bytes.len(), output: OutputBuffer::SameSize(bytes.as_mut_ptr()) }
}

/// Buffers of an operation whose result the engine allocates.
pub fn allocate_output<T: Element>(data: &[T]) -> TensorBuffers {
    let bytes = bytes_of(data);
    TensorBuffers { input: bytes.as_ptr(), n_bytes: bytes.len(), output: OutputBuffer::Allocate }
}

/// Elements of a result that the engine allocated for a call with elements of `T`.
pub fn output_elements<T: Element>(output: &Output) -> Vec<T> {
    let bytes = &output.bytes;
    let n = bytes.len() / size_of::<T>();
    let mut output_elements: Vec<T> = Vec::with_capacity(n);
    // SAFETY: the vector has capacity for `n` elements. The bytes are valid values of `T`: copied from a rank's `T`s or written by a reduction
    // kernel of `T`'s dtype.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), output_elements.as_mut_ptr().cast(), n * size_of::<T>());
        output_elements.set_len(n);
    }
    output_elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_must_be_whole() {
        let shape = |n_elements: usize, row| {
            reducescatter_request("rows", &vec![0i16; n_elements], row, Reduce::SUM).map(|it| it.shape)
        };
        assert_eq!(shape(6, 2), Ok(vec![3, 2]));
        assert_eq!(shape(0, 2), Ok(vec![0, 2]));
        assert_eq!(shape(0, 0), Ok(vec![0, 0]));
        assert_eq!(shape(5, 2), Err(SubmitError::PartialRows { n_elements: 5, row: 2 }));
        assert_eq!(shape(5, 6), Err(SubmitError::PartialRows { n_elements: 5, row: 6 }));
        assert_eq!(shape(5, 0), Err(SubmitError::PartialRows { n_elements: 5, row: 0 }));
    }

    #[test]
    fn tensors_of_a_group_are_numbered_from_1() {
        assert_eq!(group_names("grad", 3).collect::<Vec<_>>(), ["grad_1of3", "grad_2of3", "grad_3of3"]);
        assert_eq!(group_names("grad", 0).count(), 0);
    }
}
