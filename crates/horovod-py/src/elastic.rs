//! The place of this process in an elastic job, whose ranks change while it runs. `engine` starts the engine of each generation; this module
//! keeps the numbers of generations and asks the launcher for announced changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corro_base::error_chain;
use corro_collectives::elastic::{self, ElasticProcess, ElasticStartError, PlaceError};
use corro_collectives::{Engine, Settings};
use pyo3::prelude::*;

use crate::{errors, gil};

/// The generation of the engine that was started last; 0 before the first.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The last generation that this process has tried to connect, which it must not ask for again.
static ATTEMPTED: AtomicU64 = AtomicU64::new(0);

#[pyfunction]
pub fn is_elastic() -> bool {
    // Invalid variables are reported by `init`.
    ElasticProcess::from_environment().is_ok_and(|process| process.is_some())
}

#[pyfunction]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::SeqCst)
}

#[pyfunction]
pub fn elastic_update(py: Python<'_>, timeout_s: f64) -> PyResult<u8> {
    let timeout = Duration::try_from_secs_f64(timeout_s)
        .map_err(|_| errors::value_error(format!("timeout_s is {timeout_s}: give a number of seconds")))?;
    let process = ElasticProcess::from_environment().map_err(|error| errors::init_error(&error))?;
    let (Some(process), before) = (process, generation()) else { return Ok(0) };
    let update = on_thread(py, move |interrupted| {
        let deadline = Instant::now() + timeout;
        // Without an answer there is nothing to do: when the launcher has ended, this process will be.
        let update = if before == 0 { Ok(None) } else { process.wait_for_update(before, timeout) };
        if let Ok(Some(update)) = update {
            return update as u8;
        }
        // A caller in a loop shall not ask again at once.
        while Instant::now() < deadline && !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50).min(deadline.saturating_duration_since(Instant::now())));
        }
        0
    })?;
    // A change that was announced to another generation is none for this one.
    Ok(if generation() == before { update.unwrap_or(0) } else { 0 })
}

/// Called in a forked child, which is no process of the job.
pub fn after_fork() {
    GENERATION.store(0, Ordering::SeqCst);
}

/// Connects the next generation. Returns its number with the engine.
pub fn start_next(
    process: &ElasticProcess,
    settings: &Settings,
    interrupted: &AtomicBool,
) -> Result<(u64, Engine), ElasticStartError> {
    let after = ATTEMPTED.load(Ordering::SeqCst);
    let interrupted = || interrupted.load(Ordering::Relaxed);
    let attempted = |generation| {
        ATTEMPTED.fetch_max(generation, Ordering::SeqCst);
    };
    elastic::start_generation(process, after, settings, &interrupted, &attempted)
}

pub fn on_started(generation: u64) {
    GENERATION.store(generation, Ordering::SeqCst);
}

/// The exception for a generation that could not be started.
pub fn start_error(error: ElasticStartError) -> PyErr {
    match error {
        ElasticStartError::Place(PlaceError::Dismissed { .. }) => errors::NotPartOfJob::new_err(0),
        ElasticStartError::Place(error) => errors::init_error(&error),
        ElasticStartError::Start(error) => errors::init_error(&error),
    }
}

/// Does blocking work on a thread of its own and waits for it, checking for Ctrl-C. After an interrupt the flag is set, and the result is
/// dropped. `None` when the work has panicked.
pub fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> PyResult<Option<T>> {
    let (sender, receiver) = channel();
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let thread = std::thread::Builder::new().name("corro-start".into()).spawn(move || drop(sender.send(work(&flag))));
    thread.map_err(|error| errors::value_error(format!("cannot start a thread: {}", error_chain::join(&error))))?;
    let receiver = Mutex::new(receiver);
    let mut result = None;
    let waited = gil::wait_released(py, |slice| {
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        match receiver.recv_timeout(slice) {
            Ok(value) => result = Some(value),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => {}
        }
        true
    });
    waited.inspect_err(|_| interrupted.store(true, Ordering::Relaxed))?;
    Ok(result)
}
