//! Maps errors to Python exceptions: invalid arguments to ValueError, failures of the engine or of other ranks to
//! HorovodInternalError. Texts are Horovod's if it has one.

use std::error::Error;

use corro_base::error_chain;
use corro_collectives::EngineError;
use pyo3::exceptions::{PyRuntimeError, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Error text for calls that need a running engine.
pub const NOT_INITIALIZED: &str = "Horovod has not been initialized; use hvd.init().";

pyo3::create_exception!(
    horovod._core,
    NotPartOfJob,
    PySystemExit,
    "This process is not part of its elastic job any more. Uncaught, it ends the process as a success."
);

/// The exception for an error of an operation.
pub fn from_engine_error(py: Python<'_>, error: &EngineError) -> PyErr {
    if error.is_invalid_argument() { value_error(error.to_string()) } else { internal_error(py, error.to_string()) }
}

/// ValueError for an invalid argument.
pub fn value_error(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// HorovodInternalError, for failures of the engine or of other ranks.
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

/// The exception for a failed `init`, with all causes.
pub fn init_error(error: &dyn Error) -> PyErr {
    value_error(format!("Horovod initialization failed: {}", error_chain::join(error)))
}
