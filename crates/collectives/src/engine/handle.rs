//! Results of submitted operations. The thread that polls the progress engine fills them in; waiters sleep on a futex.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::coordinator::{ProcessSet, ProcessSetError, SubmitError};
use crate::device::context::{DeviceEvent, DeviceMemory};
use crate::transport::shm::step_sync::{sleep, wake};

/// Error of an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// This rank's submission is invalid; no other rank was involved.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The ranks' requests to add or remove a process set are invalid or differ. The engine stays usable.
    #[error(transparent)]
    ProcessSet(#[from] ProcessSetError),
    /// The ranks' requests do not match, a rank died, or the engine has shut down; the text says which.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl EngineError {
    /// Converts a submission error. A submission after shutdown is a failure, not an invalid argument.
    pub(crate) fn from_submit(error: SubmitError) -> EngineError {
        match error {
            SubmitError::Ended(text) => EngineError::Failed(text),
            error => EngineError::Refused(error),
        }
    }

    /// True for wrong arguments (Python's ValueError), false for Horovod's internal error.
    pub fn is_invalid_argument(&self) -> bool {
        match self {
            EngineError::Refused(refused) => refused.is_invalid_argument(),
            EngineError::ProcessSet(_) => true,
            EngineError::Failed(_) => false,
        }
    }
}

/// Result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// One for each tensor of the call. Results that were written to the caller's buffer have no bytes here.
    pub outputs: Vec<Output>,
    /// Join: global rank that joined last.
    pub last_joined: Option<u32>,
    /// Added process sets.
    pub sets: Vec<ProcessSet>,
}

/// Result of one tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Empty if the result is in the caller's buffer.
    pub bytes: Vec<u8>,
    /// Dimensions of the result.
    pub shape: Vec<u64>,
    /// Alltoall: rows received from each member.
    pub received: Vec<u64>,
    /// For a tensor in the memory of a device.
    pub device: Option<Arc<DeviceOutput>>,
}

/// Result in the memory of a device. It is there when the event is complete, not before.
#[derive(Debug, PartialEq)]
pub struct DeviceOutput {
    /// `None` if the result is in the caller's buffer.
    pub memory: Option<DeviceMemory>,
    pub done: Arc<DeviceEvent>,
}

/// Counter of completed calls, which lets one thread wait for the first of several calls to complete. Wraps around.
#[derive(Debug, Default)]
pub struct CompletionEvent {
    n_completed: AtomicU32,
}

impl CompletionEvent {
    /// Current count. Read it before checking the handles and pass it to [`crate::Engine::wait_event`]; no completion in between is missed.
    pub fn count(&self) -> u32 {
        self.n_completed.load(Ordering::SeqCst)
    }

    /// Wakes the waiter as if a call had completed.
    pub fn notify(&self) {
        self.n_completed.fetch_add(1, Ordering::SeqCst);
        wake(&self.n_completed);
    }

    /// Sleeps on a futex until the count differs from `seen`, for at most `timeout`. May return early.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        sleep(&self.n_completed, seen, timeout);
    }
}

/// Completion of one call, which has several tensors if it is a group.
pub(crate) struct Completion {
    /// 0 while pending, 1 afterwards. Waiters sleep on it as a futex.
    done: AtomicU32,
    state: Mutex<State>,
    event: Option<Arc<CompletionEvent>>,
}

struct State {
    n_pending: usize,
    outcome: Outcome,
    error: Option<EngineError>,
}

impl Completion {
    /// Pending until this many tensors are complete; complete at once for none.
    pub fn new(n_tensors: usize) -> Arc<Completion> {
        Completion::with_event(n_tensors, None)
    }

    /// As [`Completion::new`]; the event counts the call when it completes.
    pub fn with_event(n_tensors: usize, event: Option<Arc<CompletionEvent>>) -> Arc<Completion> {
        let outcome = Outcome { outputs: vec![Output::default(); n_tensors], ..Outcome::default() };
        let state = State { n_pending: n_tensors, outcome, error: None };
        Arc::new(Completion { done: AtomicU32::new(u32::from(n_tensors == 0)), state: Mutex::new(state), event })
    }

    /// True once the result is available. Never blocks.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }

    /// True if no device uses the tensors of a completed call any more.
    pub fn is_settled(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.outcome.outputs.iter().all(|output| {
            // A device that no longer answers has ended its work.
            output.device.as_ref().is_none_or(|device| device.done.is_complete().unwrap_or(true))
        })
    }

    /// Completes one tensor of the call. The call completes with its last tensor; its error is the first one.
    pub fn complete_one(&self, result: Result<(), EngineError>, change: impl FnOnce(&mut Outcome)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => change(&mut state.outcome),
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        state.n_pending -= 1;
        if state.n_pending == 0 {
            drop(state);
            self.finish();
        }
    }

    /// Fails the whole call, including pending tensors.
    pub fn fail(&self, error: EngineError) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.error.get_or_insert(error);
        state.n_pending = 0;
        drop(state);
        self.finish();
    }

    fn finish(&self) {
        self.done.store(1, Ordering::SeqCst);
        wake(&self.done);
        if let Some(event) = &self.event {
            event.notify();
        }
    }

    /// Sleeps until the call completes, for at most `timeout`.
    pub fn sleep(&self, timeout: Duration) {
        sleep(&self.done, 0, timeout);
    }

    /// Result of a completed call. Only the first call gets the outputs.
    pub fn take_outcome(&self) -> Result<Outcome, EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.error.clone() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.outcome)),
        }
    }
}
