//! The one file that maps errors to Python's exceptions: wrong arguments are ValueError, what the ranks together could not do is
//! HorovodInternalError. The texts are Horovod's where Horovod has one.

use std::error::Error;

use corro_collectives::EngineError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What is asked for needs an engine.
pub const NOT_INITIALIZED: &str = "Horovod has not been initialized; use hvd.init().";

/// Of an operation.
pub fn from_engine_error(py: Python<'_>, error: &EngineError) -> PyErr {
    if error.is_invalid_argument() { value_error(error.to_string()) } else { internal_error(py, error.to_string()) }
}

/// A wrong argument.
pub fn value_error(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// What only the ranks together, or the engine, could have done.
pub fn internal_error(py: Python<'_>, text: impl Into<String>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let text = text.into();
    match CLASS.import(py, "horovod.common.exceptions", "HorovodInternalError") {
        Ok(class) => PyErr::from_type(class.clone(), text),
        Err(cause) => {
            let error = PyRuntimeError::new_err(text);
            error.set_cause(py, Some(cause));
            error
        }
    }
}

/// `init` did not succeed; with all causes.
pub fn init_error(error: &dyn Error) -> PyErr {
    value_error(format!("Horovod initialization failed: {}", error_chain(error)))
}

/// An error with its causes, in one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
