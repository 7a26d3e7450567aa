//! Results allocated by the engine, as Python objects with an address, a shape and a dtype. Knows no framework; NumPy
//! uses the array interface.

use corro_collectives::Dtype;
use corro_collectives::engine::handle;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A result. Owns the memory, so it must outlive every use of the address.
#[pyclass(module = "horovod._core", frozen)]
pub struct Output {
    bytes: Vec<u8>,
    shape: Vec<u64>,
    received: Vec<u64>,
    dtype: Dtype,
}

/// Memory behind empty tensors: some frameworks require an aligned address even for them.
#[repr(align(64))]
struct EmptyTensor([u8; 64]);
static EMPTY_TENSOR: EmptyTensor = EmptyTensor([0; 64]);

impl Output {
    pub fn new(output: handle::Output, dtype: Dtype) -> Output {
        let handle::Output { bytes, shape, received } = output;
        Output { bytes, shape, received, dtype }
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
