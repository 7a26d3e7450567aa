//! Polling of the progress engine: by threads that wait for a result, and by the engine's own thread when none waits. At most one thread
//! polls at a time; the others sleep on their completion.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::coordinator::SHUTDOWN_MESSAGE;
use crate::engine::handle::{Completion, CompletionEvent, EngineError};
use crate::engine::progress::ProgressEngine;
use crate::engine::submission::Submission;
use crate::transport::control::channel::Waker;

/// State shared between the engine's thread and waiting threads.
pub struct EngineState {
    progress: Mutex<ProgressEngine>,
    pub submissions: Mutex<Vec<Submission>>,
    pub waker: Arc<Waker>,
    /// True while a thread polls the progress engine and is awake.
    is_progressing: AtomicBool,
    pub is_ending: AtomicBool,
    /// Polls without progress before a polling thread yields its core.
    max_idle_polls: u32,
}

/// Longest sleep of the polling thread; bounds how late housekeeping runs.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// Longest sleep of a thread that waits while another one polls. Completion wakes it earlier.
const WAITER_SLEEP: Duration = Duration::from_millis(5);
/// Attempts to take the lock of the progress engine before a waiting thread sleeps.
const LOCK_SPINS: u32 = 20;
/// `sched_yield` calls without progress before the polling thread sleeps.
const YIELDS_BEFORE_SLEEP: u32 = 100;
/// Cost of one poll of the progress engine, in spins on a flag. Converts the spin limit to polls. The rank that is waited for may share this
/// core until the scheduler moves one of them; time spent before the first yield is then added to every call.
const SPINS_PER_POLL: u32 = 8;
/// Deadline for the coordinator's shutdown message; after it this rank shuts down alone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

impl EngineState {
    /// `spins`: spin limit of the wait policy.
    pub fn new(progress: ProgressEngine, waker: Arc<Waker>, spins: u32) -> EngineState {
        EngineState {
            waker,
            max_idle_polls: spins / SPINS_PER_POLL,
            progress: Mutex::new(progress),
            submissions: Mutex::new(Vec::new()),
            is_progressing: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        }
    }

    /// Makes sure that a new submission is seen: wakes the polling thread if it sleeps, or the engine's thread if none polls.
    pub fn ensure_progress(&self) {
        if self.is_progressing.load(Ordering::SeqCst) {
            self.waker.wake();
        } else {
            self.waker.force();
        }
    }

    /// Waits for a completion or the deadline, polling the progress engine unless another thread does.
    pub fn wait(&self, completion: &Completion, deadline: Option<Instant>) {
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut n_spins = 0;
        while !completion.is_done() && !is_over() {
            match self.progress.try_lock() {
                Ok(mut progress) => {
                    self.progress_until(&mut progress, |_| completion.is_done() || is_over(), true);
                    self.release(progress);
                }
                Err(TryLockError::Poisoned(_)) => {
                    completion.fail(EngineError::Failed(
                        "the engine has stopped after a panic; see the panic message".into(),
                    ));
                }
                Err(TryLockError::WouldBlock) => {
                    n_spins += 1;
                    if n_spins < LOCK_SPINS {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    completion.sleep(WAITER_SLEEP);
                }
            }
        }
    }

    /// As [`EngineState::wait`], until the event's count differs from `seen`. False if the engine has stopped after a panic.
    pub fn wait_event(&self, event: &CompletionEvent, seen: u32, deadline: Instant) -> bool {
        let is_over = || event.count() != seen || Instant::now() >= deadline;
        let mut n_spins = 0;
        while !is_over() {
            match self.progress.try_lock() {
                Ok(mut progress) => {
                    self.progress_until(&mut progress, |_| is_over(), true);
                    self.release(progress);
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) => {
                    n_spins += 1;
                    if n_spins < LOCK_SPINS {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    event.sleep(seen, WAITER_SLEEP);
                }
            }
        }
        true
    }

    /// Polls until the shutdown requested by this rank is complete, or its timeout is over.
    pub fn finish_shutdown(&self) {
        let Ok(mut progress) = self.progress.lock() else { return };
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        self.progress_until(&mut progress, |progress| progress.ended.is_some() || Instant::now() >= deadline, true);
        progress.shut_down_with(SHUTDOWN_MESSAGE);
        // The coordinator's shutdown messages to other ranks must be sent before this process may exit.
        progress.flush_outgoing();
    }

    /// Polls until `done`. If not `blocks`, returns also when there has been no progress for a while. Otherwise spins, yields, then
    /// sleeps between polls.
    fn progress_until(&self, progress: &mut ProgressEngine, done: impl Fn(&ProgressEngine) -> bool, blocks: bool) {
        self.is_progressing.store(true, Ordering::SeqCst);
        self.waker.rouse();
        let mut submissions = Vec::new();
        let mut idle = 0;
        loop {
            self.take_submissions(&mut submissions);
            if progress.poll_once(&mut submissions) {
                idle = 0;
                if done(progress) {
                    return;
                }
                continue;
            }
            if done(progress) {
                return;
            }
            idle += 1;
            if idle <= self.max_idle_polls {
                std::hint::spin_loop();
            } else if idle <= self.max_idle_polls + YIELDS_BEFORE_SLEEP && !progress.has_failed_peer() {
                rustix::thread::sched_yield();
            } else if !blocks {
                return;
            } else {
                let ticket = self.waker.doze();
                if !progress.has_incoming() && !self.has_submissions() {
                    if !progress.has_failed_peer() {
                        self.waker.sleep(ticket, MAX_SLEEP);
                    }
                    progress.housekeeping();
                }
                self.waker.rouse();
            }
        }
    }

    /// Stops polling and releases the lock. If this rank still has pending operations, incoming messages wake the engine's thread from now
    /// on; otherwise no wake-up is needed.
    fn release(&self, progress: MutexGuard<'_, ProgressEngine>) {
        self.is_progressing.store(false, Ordering::SeqCst);
        let waits = progress.has_pending() || progress.coordinates_other_sets();
        if waits {
            self.waker.doze();
        }
        let has_incoming = waits && progress.has_incoming();
        drop(progress);
        // Checked after releasing the lock: a submitter that came earlier found the lock taken and relies on this check; one that comes
        // later finds `is_progressing` false and wakes the engine's thread itself.
        if has_incoming || self.has_submissions() {
            self.waker.force();
        }
    }

    fn take_submissions(&self, submissions: &mut Vec<Submission>) {
        let mut queue = self.submissions.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.is_empty() {
            std::mem::swap(&mut *queue, submissions);
        }
    }

    fn has_submissions(&self) -> bool {
        !self.submissions.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Body of the engine's thread.
    pub fn run_thread(&self) {
        while !self.is_ending.load(Ordering::SeqCst) {
            let seen = self.waker.seen();
            if let Ok(mut progress) = self.progress.try_lock() {
                self.progress_until(&mut progress, |progress| !progress.has_pending(), false);
                progress.housekeeping();
                self.release(progress);
            }
            self.waker.sleep(seen, MAX_SLEEP);
        }
    }
}
