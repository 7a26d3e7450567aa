//! The engine of this process once it runs, and waiting for operations without tensors. `engine` starts and stops it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corro_collectives::engine::handle::Outcome;
use corro_collectives::engine::ops::Handle;
use corro_collectives::{Engine, EngineError};
use pyo3::prelude::*;

use crate::{errors, gil};

static STATE: Mutex<State> = Mutex::new(State { running: None, starting: false, parent_launch: None });

pub struct State {
    pub running: Option<RunningEngine>,
    /// Some thread is starting the engine.
    pub starting: bool,
    /// In a forked child: the launch key of the parent.
    pub parent_launch: Option<String>,
}

#[derive(Clone)]
pub struct RunningEngine {
    pub engine: Arc<Engine>,
    /// Rank and rendezvous of this process as text, compared in a forked child.
    pub launch_key: String,
    pub timeline: bool,
    /// In an elastic job, else 0.
    pub generation: u64,
}

/// The running engine, for operations on tensors.
pub fn running() -> Option<Arc<Engine>> {
    lock().running.as_ref().map(|running| running.engine.clone())
}

/// Why a wait did not succeed.
pub enum WaitError {
    Failed(EngineError),
    Interrupted(PyErr),
}

impl WaitError {
    pub fn into_pyerr(self, py: Python<'_>) -> PyErr {
        match self {
            WaitError::Failed(error) => errors::from_engine_error(py, &error),
            WaitError::Interrupted(error) => error,
        }
    }
}

/// Waits for an operation without tensors.
pub fn wait(py: Python<'_>, engine: &Engine, handle: Handle) -> Result<Outcome, WaitError> {
    gil::wait_released(py, |slice| engine.wait_for(&handle, slice)).map_err(WaitError::Interrupted)?;
    handle.outcome().map_err(WaitError::Failed)
}

/// The running engine, or the error that there is none.
pub fn require_running() -> PyResult<RunningEngine> {
    lock().running.clone().ok_or_else(|| errors::value_error(errors::NOT_INITIALIZED))
}

pub fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
