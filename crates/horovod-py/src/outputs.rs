//! Results allocated by the engine, as Python objects with an address, a shape and a dtype. Knows no framework; NumPy
//! uses the array interface.

use std::sync::Arc;

use corro_collectives::Dtype;
use corro_collectives::engine::handle::{self, DeviceOutput};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A result. Owns the memory, so it must outlive every use of the address.
#[pyclass(module = "horovod._core", frozen)]
pub struct Output {
    bytes: Vec<u8>,
    shape: Vec<u64>,
    received: Vec<u64>,
    dtype: Dtype,
    /// For a result in the memory of a device.
    device: Option<Arc<DeviceOutput>>,
}

/// Memory behind empty tensors: some frameworks require an aligned address even for them.
#[repr(align(64))]
struct EmptyTensor([u8; 64]);
static EMPTY_TENSOR: EmptyTensor = EmptyTensor([0; 64]);

impl Output {
    pub fn new(output: handle::Output, dtype: Dtype) -> Output {
        let handle::Output { bytes, shape, received, device } = output;
        Output { bytes, shape, received, dtype, device }
    }
}

#[pymethods]
impl Output {
    /// Aligned to 16 bytes by the allocator.
    #[getter]
    fn address(&self) -> usize {
        if self.bytes.is_empty() { EMPTY_TENSOR.0.as_ptr() as usize } else { self.bytes.as_ptr() as usize }
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn dtype(&self) -> u8 {
        self.dtype as u8
    }

    /// Alltoall: number of rows received from each member.
    #[getter]
    fn received<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.received)
    }

    /// For tensors of frameworks in the memory of a device, without a copy; elements appear as integers of their size.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let memory = self.device.as_ref().and_then(|device| device.memory.as_ref());
        let memory = memory.ok_or_else(|| PyAttributeError::new_err("the result is not in the memory of a device"))?;
        let interface = PyDict::new(py);
        interface.set_item("version", 2)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", ["|u1", "<i2", "<i4", "<i8"][self.dtype.size().ilog2() as usize])?;
        interface.set_item("data", (memory.ptr(), false))?;
        Ok(interface)
    }

    /// For numpy.asarray without a copy; bfloat16 appears as uint16.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr(self.dtype))?;
        interface.set_item("data", (self.address(), false))?;
        Ok(interface)
    }
}

fn typestr(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 => "|u1",
        Dtype::I8 => "|i1",
        Dtype::U16 | Dtype::Bf16 => "<u2",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::Bool => "|b1",
    }
}
