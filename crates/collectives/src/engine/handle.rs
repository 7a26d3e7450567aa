//! What somebody who submitted an operation holds: its outcome, once there is one. Filled in by whoever drives the engine.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::coordinator::{ProcessSet, ProcessSetError, SubmitError};
use crate::transport::shm::step_sync::{sleep, wake};

/// Why an operation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Nothing was asked of the others: what this rank gave is wrong.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// All ranks were asked, and cannot have or lose that process set; the engine goes on.
    #[error(transparent)]
    ProcessSet(#[from] ProcessSetError),
    /// The ranks do not agree, a rank is gone, or the engine has ended; the text says which.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl EngineError {
    /// An engine that has ended is no fault of the arguments.
    pub(crate) fn from_submit(error: SubmitError) -> EngineError {
        match error {
            SubmitError::Ended(text) => EngineError::Failed(text),
            error => EngineError::Refused(error),
        }
    }

    /// Wrong arguments (Python's ValueError); otherwise Horovod's internal error.
    pub fn is_invalid_argument(&self) -> bool {
        match self {
            EngineError::Refused(refused) => refused.is_invalid_argument(),
            EngineError::ProcessSet(_) => true,
            EngineError::Failed(_) => false,
        }
    }
}

/// What an operation yields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Results that the engine made room for, one for each tensor of the call; the others are where they were wanted.
    pub outputs: Vec<Output>,
    /// Join: the global rank that came last.
    pub last_joined: Option<u32>,
    /// Process sets that were added.
    pub sets: Vec<ProcessSet>,
}

/// One tensor of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Empty when the result is where the caller wanted it.
    pub bytes: Vec<u8>,
    /// In elements, rows first.
    pub shape: Vec<u64>,
    /// Alltoall: rows received from each member.
    pub received: Vec<u64>,
}

/// Counts the calls that have ended among those it was given to, so that one thread can wait for whichever ends first. Wraps around.
#[derive(Debug, Default)]
pub struct CompletionEvent {
    n_ended: AtomicU32,
}

impl CompletionEvent {
    /// To be read before looking at the handles, and given to [`crate::Engine::wait_event`] afterwards: nothing is missed between.
    pub fn count(&self) -> u32 {
        self.n_ended.load(Ordering::SeqCst)
    }

    /// Ends the waiting as if a call had ended, to have the waiter look at what is new.
    pub fn notify(&self) {
        self.n_ended.fetch_add(1, Ordering::SeqCst);
        wake(&self.n_ended);
    }

    /// Sleeps on a futex until the count is not `seen`, or for a while. May return early.
    pub fn sleep(&self, seen: u32, nap: Duration) {
        sleep(&self.n_ended, seen, nap);
    }
}

/// One call: several tensors when it is a group.
pub(crate) struct Completion {
    /// 0 while pending. What waiters sleep on.
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
    /// Pending until so many tensors have ended: not at all for none.
    pub fn new(n_tensors: usize) -> Arc<Completion> {
        Completion::with_event(n_tensors, None)
    }

    /// As [`Slot::new`]; the event counts the call when it ends.
    pub fn with_event(n_tensors: usize, event: Option<Arc<CompletionEvent>>) -> Arc<Completion> {
        let outcome = Outcome { outputs: vec![Output::default(); n_tensors], ..Outcome::default() };
        let state = State { n_pending: n_tensors, outcome, error: None };
        Arc::new(Completion { done: AtomicU32::new(u32::from(n_tensors == 0)), state: Mutex::new(state), event })
    }

    /// Never waits.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }

    /// One tensor of the call has come to its end. The first error is the call's, when all have ended.
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

    /// Fails the call whatever of it is pending.
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

    /// Sleeps for a while, or until it is done.
    pub fn sleep(&self, nap: Duration) {
        sleep(&self.done, 0, nap);
    }

    /// Once it is done.
    pub fn take_outcome(&self) -> Result<Outcome, EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.error.clone() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.outcome)),
        }
    }
}
