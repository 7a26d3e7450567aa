//! Tensors in simulated device memory, and the plain definition of a reduction: one element at a time, in f64, of values that every dtype
//! represents exactly.

use std::sync::Arc;

use half::{bf16, f16};

use super::job::{Rank, buffers};
use crate::device::driver::{DevicePtr, Driver};
use crate::device::fake::FakeDriver;
use crate::engine::submission::TensorBuffers;
use crate::{Dtype, ReduceOp};

/// Elements in device memory, which is freed at the end.
pub struct Tensor {
    driver: Arc<FakeDriver>,
    base: DevicePtr,
    pub ptr: DevicePtr,
    dtype: Dtype,
    n_elements: usize,
}

impl Tensor {
    pub fn new(rank: &Rank, dtype: Dtype, elements: &[f64]) -> Tensor {
        Tensor::after(rank, dtype, elements, 0)
    }

    /// Elements that begin some elements after the start of the allocation, so that the address is not aligned for vectors.
    pub fn after(rank: &Rank, dtype: Dtype, elements: &[f64], n_before: usize) -> Tensor {
        let mut bytes = vec![0xaa; n_before * dtype.size()];
        bytes.extend(encode(dtype, elements));
        let base = rank.driver.memory(&bytes);
        let ptr = base + (n_before * dtype.size()) as u64;
        Tensor { driver: rank.driver.clone(), base, ptr, dtype, n_elements: elements.len() }
    }

    /// A tensor whose elements are ones, all bits of them: no reduction leaves it unchanged by chance.
    pub fn unwritten(rank: &Rank, dtype: Dtype, n_elements: usize) -> Tensor {
        let base = rank.driver.memory(&vec![0xff; n_elements * dtype.size()]);
        Tensor { driver: rank.driver.clone(), base, ptr: base, dtype, n_elements }
    }

    pub fn n_bytes(&self) -> usize {
        self.n_elements * self.dtype.size()
    }

    pub fn elements(&self) -> Vec<f64> {
        decode(self.dtype, &self.driver.read(self.ptr, self.n_bytes()))
    }

    pub fn write(&self, elements: &[f64]) {
        self.driver.write(self.ptr, &encode(self.dtype, elements));
    }

    /// Buffers of an operation in place.
    pub fn in_place(&self) -> TensorBuffers {
        buffers(self.ptr, self.n_bytes(), Some(self.ptr))
    }

    pub fn output_to(&self, output: &Tensor) -> TensorBuffers {
        buffers(self.ptr, self.n_bytes(), Some(output.ptr))
    }

    /// Buffers of an operation whose result the engine allocates.
    pub fn output_allocated(&self) -> TensorBuffers {
        buffers(self.ptr, self.n_bytes(), None)
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // Work in progress may use it after a failed assertion.
        if !std::thread::panicking() {
            self.driver.free(self.base);
        }
    }
}

/// Small value that depends on rank and index.
pub fn value(dtype: Dtype, rank: usize, index: usize) -> f64 {
    match dtype {
        Dtype::Bool => ((rank * index + index) % 2) as f64,
        Dtype::U8 | Dtype::U16 => ((2 * rank + index) % 4) as f64,
        _ => ((3 * rank + index) % 6) as f64 - 2.0,
    }
}

pub fn values(dtype: Dtype, rank: usize, n_elements: usize) -> Vec<f64> {
    (0..n_elements).map(|index| value(dtype, rank, index)).collect()
}

/// Parameters of a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    pub dtype: Dtype,
    pub op: ReduceOp,
    pub prescale: f64,
    pub postscale: f64,
}

impl Reduction {
    pub const fn new(dtype: Dtype, op: ReduceOp) -> Reduction {
        Reduction { dtype, op, prescale: 1.0, postscale: 1.0 }
    }

    /// The result of these ranks' [`values`].
    pub fn of(self, ranks: impl Iterator<Item = usize> + Clone, n_elements: usize) -> Vec<f64> {
        let n = ranks.clone().count() as f64;
        self.of_members(ranks, n, n_elements)
    }

    /// As [`Reduction::of`], where the average is that of `n` members: those that are missing contribute zeros.
    pub fn of_members(self, ranks: impl Iterator<Item = usize> + Clone, n: f64, n_elements: usize) -> Vec<f64> {
        let factor = if self.op == ReduceOp::Average { self.postscale / n } else { self.postscale };
        let combine = |one: f64, other: f64| match (self.op, self.dtype) {
            (ReduceOp::Average | ReduceOp::Sum, Dtype::Bool) => one.max(other),
            (ReduceOp::Average | ReduceOp::Sum, _) => one + other,
            (ReduceOp::Min, _) => one.min(other),
            (ReduceOp::Max, _) => one.max(other),
            (ReduceOp::Product, _) => one * other,
            (ReduceOp::Adasum, _) => unreachable!("it is no elementwise operation"),
        };
        let element = |index| {
            let inputs = ranks.clone().map(|rank| scaled(self.dtype, value(self.dtype, rank, index), self.prescale));
            scaled(self.dtype, inputs.reduce(combine).expect("there are members"), factor)
        };
        (0..n_elements).map(element).collect()
    }
}

fn scaled(dtype: Dtype, element: f64, factor: f64) -> f64 {
    let integer = |min: f64, max: f64| (element * factor).trunc().clamp(min, max);
    match dtype {
        Dtype::F64 => element * factor,
        Dtype::F32 => f64::from(element as f32 * factor as f32),
        Dtype::F16 => f16::from_f32(element as f32 * factor as f32).to_f64(),
        Dtype::Bf16 => bf16::from_f32(element as f32 * factor as f32).to_f64(),
        Dtype::U8 => integer(0.0, u8::MAX.into()),
        Dtype::I8 => integer(i8::MIN.into(), i8::MAX.into()),
        Dtype::U16 => integer(0.0, u16::MAX.into()),
        Dtype::I16 | Dtype::I32 | Dtype::I64 => integer(i16::MIN.into(), i16::MAX.into()),
        Dtype::Bool => element,
    }
}

pub fn encode(dtype: Dtype, elements: &[f64]) -> Vec<u8> {
    let bytes = |element: f64| match dtype {
        Dtype::U8 | Dtype::Bool => (element as u8).to_ne_bytes().to_vec(),
        Dtype::I8 => (element as i8).to_ne_bytes().to_vec(),
        Dtype::U16 => (element as u16).to_ne_bytes().to_vec(),
        Dtype::I16 => (element as i16).to_ne_bytes().to_vec(),
        Dtype::I32 => (element as i32).to_ne_bytes().to_vec(),
        Dtype::I64 => (element as i64).to_ne_bytes().to_vec(),
        Dtype::F16 => f16::from_f64(element).to_ne_bytes().to_vec(),
        Dtype::Bf16 => bf16::from_f64(element).to_ne_bytes().to_vec(),
        Dtype::F32 => (element as f32).to_ne_bytes().to_vec(),
        Dtype::F64 => element.to_ne_bytes().to_vec(),
    };
    elements.iter().flat_map(|element| bytes(*element)).collect()
}

pub fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], element: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|bytes| element(*bytes)).collect()
    }
    match dtype {
        Dtype::U8 | Dtype::Bool => each(bytes, |bytes| u8::from_ne_bytes(bytes).into()),
        Dtype::I8 => each(bytes, |bytes| i8::from_ne_bytes(bytes).into()),
        Dtype::U16 => each(bytes, |bytes| u16::from_ne_bytes(bytes).into()),
        Dtype::I16 => each(bytes, |bytes| i16::from_ne_bytes(bytes).into()),
        Dtype::I32 => each(bytes, |bytes| i32::from_ne_bytes(bytes).into()),
        Dtype::I64 => each(bytes, |bytes| i64::from_ne_bytes(bytes) as f64),
        Dtype::F16 => each(bytes, |bytes| f16::from_ne_bytes(bytes).to_f64()),
        Dtype::Bf16 => each(bytes, |bytes| bf16::from_ne_bytes(bytes).to_f64()),
        Dtype::F32 => each(bytes, |bytes| f32::from_ne_bytes(bytes).into()),
        Dtype::F64 => each(bytes, f64::from_ne_bytes),
    }
}
