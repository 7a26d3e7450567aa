//! The Python module `horovod._core`: the engine of this process, by address, length and dtype of tensors. Entered by the Python files of
//! the package only; what it offers is described in `python/horovod/_core.pyi`. Knows no framework.

use pyo3::prelude::*;

#[pymodule]
mod _core {}
