//! The `slurm` provider: nodes are Slurm allocations that run `corro agent --once`, submitted with `sbatch` as the user of the server.
//! Job names carry the server's tag and the node, so `squeue` is the only record: nothing has to survive a restart of the server. One thread
//! polls `squeue` and a few submit; the [`Provider`] methods never wait for Slurm, except to cancel.
//!
//! Reading order: `batch_script` (what is submitted), `queue` (what `squeue` says), `commands` (Slurm's programs), this file.

mod args;
mod batch_script;
mod commands;
mod queue;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::state::PreemptionCause;
use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};

pub use args::SlurmArgs;
pub use batch_script::{JoinInfo, SlurmOptions};
use batch_script::{ServerTag, batch_script, sbatch_args};
use commands::CommandError;
use queue::AllocationTable;

/// Poll intervals of `squeue`, while something changes and while nothing does.
const ACTIVE_POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The active interval applies for this long after a change.
const ACTIVE_PERIOD: Duration = Duration::from_secs(20);
/// Failed polls in a row before a warning. The first poll runs while the server starts, so one failure alone would be logged before the
/// server has printed its address.
const POLL_FAILURES_BEFORE_WARNING: u32 = 2;
/// Poll results older than this are not used.
const MAX_POLL_AGE: Duration = Duration::from_secs(60);
/// Time for an agent that was asked to end before its allocation is cancelled.
const AGENT_EXIT_GRACE: Duration = Duration::from_secs(3);
/// Minimum time between two `scancel` of the same node.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_secs(10);
const SUBMIT_THREADS: usize = 4;

pub struct SlurmNodes {
    shared: Arc<Shared>,
}

struct Shared {
    options: SlurmOptions,
    join: JoinInfo,
    tag: ServerTag,
    state: Mutex<State>,
    /// Notified on a new submission, a change that shortens the poll interval, and at the end.
    wakeup: Condvar,
}

/// In-memory state. A restart loses nothing that `squeue` does not return.
#[derive(Default)]
struct State {
    allocations: AllocationTable,
    /// Start of the poll that returned `allocations`; `None` before the first.
    polled_at: Option<Instant>,
    last_change: Option<Instant>,
    /// Number of polls that failed since the last success.
    n_failed_polls: u32,
    /// Nodes to submit, each with the arguments and the script for `sbatch`.
    to_submit: VecDeque<(NodeId, Vec<String>, String)>,
    submissions: HashMap<NodeId, Submission>,
    /// Nodes that must end, with the time of the first request and of the last `scancel`.
    leaving: HashMap<NodeId, (Instant, Option<Instant>)>,
    is_stopping: bool,
}

enum Submission {
    /// `sbatch` has not returned yet.
    InProgress,
    /// `sbatch` accepted the job at this time. A poll that starts later sees it.
    Accepted(Instant),
    /// `sbatch` failed with this error.
    Rejected(String),
}

impl SlurmNodes {
    /// Starts the polling and submitting threads. They end when the provider is dropped.
    pub fn new(options: SlurmOptions, join: JoinInfo, instance: &str) -> Self {
        let (tag, state) = (ServerTag::from_instance(instance), Mutex::new(State::default()));
        let shared = Arc::new(Shared { options, join, tag, state, wakeup: Condvar::new() });
        let poller = shared.clone();
        std::thread::spawn(move || poller.run_poll_loop());
        for _ in 0..SUBMIT_THREADS {
            let submitter = shared.clone();
            std::thread::spawn(move || submitter.run_submit_loop());
        }
        Self { shared }
    }
}

impl Drop for SlurmNodes {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.wakeup.notify_all();
    }
}

impl Provider for SlurmNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        let Shared { options, join, tag, .. } = &*self.shared;
        let (args, script) = (sbatch_args(options, tag, node), batch_script(options, tag, join, &node.id, &token));
        let mut state = self.shared.lock();
        state.submissions.insert(node.id.clone(), Submission::InProgress);
        state.to_submit.push_back((node.id.clone(), args, script));
        self.shared.wakeup.notify_all();
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        let mut state = self.shared.lock();
        match state.submissions.get(node) {
            Some(Submission::InProgress) => return Some(true),
            Some(Submission::Accepted(at)) if state.polled_at.is_none_or(|polled| polled <= *at) => return Some(true),
            _ => {}
        }
        let is_alive = state.allocations.is_alive(node);
        if is_alive && !state.allocations.is_pending(node) {
            // The server asks because the agent is silent: poll soon whether the allocation has ended.
            state.note_change();
            self.shared.wakeup.notify_all();
        }
        state.polled_at.filter(|polled| polled.elapsed() < MAX_POLL_AGE).map(|_| is_alive)
    }

    /// Slurm cannot end processes on a machine that it does not reach either.
    fn can_end_silent_nodes(&self) -> bool {
        false
    }

    fn ask_to_stop(&self, node: &NodeId) {
        self.shared.cancel(node);
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        let alive = self.is_alive(node);
        let mut state = self.shared.lock();
        if alive == Some(false) {
            state.submissions.remove(node);
            state.leaving.remove(node);
            return true;
        }
        if let Some(unsent) = state.to_submit.iter().position(|(waiting, ..)| waiting == node) {
            state.to_submit.remove(unsent);
            state.submissions.remove(node);
        }
        let (since, cancelled) = *state.leaving.entry(node.clone()).or_insert((Instant::now(), None));
        let may_cancel = state.allocations.is_pending(node) || (!polite && since.elapsed() >= AGENT_EXIT_GRACE);
        let is_due = cancelled.is_none_or(|at| at.elapsed() >= CANCEL_RETRY_INTERVAL);
        state.note_change();
        self.shared.wakeup.notify_all();
        drop(state);
        if alive == Some(true) && may_cancel && is_due {
            self.shared.cancel(node);
        }
        false
    }

    fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        let state = self.shared.lock();
        match state.submissions.get(node) {
            Some(Submission::Rejected(error)) => Some(error.clone()),
            _ => state.allocations.explain(node),
        }
    }

    fn pending_reclaim(&self, node: &NodeId, within: Duration) -> Option<PreemptionCause> {
        let state = self.shared.lock();
        let poll_age = state.polled_at?.elapsed();
        state.allocations.reclaim_cause(node, within + poll_age)
    }

    fn remove_orphans(&self, known: &dyn Fn() -> BTreeSet<NodeId>) {
        let found: Vec<(NodeId, Vec<u64>)> =
            self.shared.lock().allocations.live_jobs().map(|(node, jobs)| (node.clone(), jobs)).collect();
        if found.is_empty() {
            return;
        }
        let known = known();
        let strays: Vec<_> = found.into_iter().filter(|(node, _)| !known.contains(node)).collect();
        let jobs: Vec<u64> = strays.iter().flat_map(|(_, jobs)| jobs.iter().copied()).collect();
        if !jobs.is_empty() {
            tracing::warn!(?jobs, "Slurm jobs of nodes that no longer exist are cancelled");
            self.shared.on_cancelled(commands::scancel(&jobs));
        }
    }
}

impl Shared {
    fn run_poll_loop(&self) {
        loop {
            let began = Instant::now();
            let output = commands::squeue();
            let mut state = self.lock();
            match output {
                Ok(text) => {
                    let allocations = AllocationTable::parse(&text, &self.tag);
                    if state.n_failed_polls >= POLL_FAILURES_BEFORE_WARNING {
                        tracing::info!("squeue succeeds again");
                    }
                    if state.allocations != allocations {
                        state.note_change();
                    }
                    (state.allocations, state.polled_at, state.n_failed_polls) = (allocations, Some(began), 0);
                    state.forget_submissions_before(began);
                }
                Err(error) => {
                    if state.count_poll_failure() {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "squeue failed; retrying");
                    }
                }
            }
            while !state.is_stopping && began.elapsed() < state.poll_interval() {
                let rest = state.poll_interval().saturating_sub(began.elapsed());
                state = self.wakeup.wait_timeout(state, rest).expect("no holder of this lock panics").0;
            }
            if state.is_stopping {
                return;
            }
        }
    }

    fn run_submit_loop(&self) {
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return;
            }
            let Some((node, args, script)) = state.to_submit.pop_front() else {
                state = self.wakeup.wait(state).expect("no holder of this lock panics");
                continue;
            };
            drop(state);
            let submitted = commands::sbatch(&args, &script);
            state = self.lock();
            state.note_change();
            match submitted {
                Ok(job) => {
                    tracing::info!(%node, job, "the node is submitted to Slurm");
                    state.submissions.insert(node, Submission::Accepted(Instant::now()));
                }
                Err(error) => {
                    tracing::error!(%node, error = &error as &dyn std::error::Error, "cannot submit the node to Slurm; retrying");
                    state.submissions.insert(node, Submission::Rejected(error.to_string()));
                }
            }
            self.wakeup.notify_all();
        }
    }

    /// Cancels all allocations of a node, by job name.
    fn cancel(&self, node: &NodeId) {
        {
            let mut state = self.lock();
            let entry = state.leaving.entry(node.clone()).or_insert((Instant::now(), None));
            entry.1 = Some(Instant::now());
        }
        self.on_cancelled(commands::scancel_by_name(&self.tag.job_name(node)));
    }

    fn on_cancelled(&self, result: Result<(), CommandError>) {
        if let Err(error) = result {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "scancel failed; retrying");
        }
        self.lock().note_change();
        self.wakeup.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    fn note_change(&mut self) {
        self.last_change = Some(Instant::now());
    }

    /// Counts a failed poll. Returns whether to log it: once in a row of failures.
    fn count_poll_failure(&mut self) -> bool {
        self.n_failed_polls = self.n_failed_polls.saturating_add(1);
        self.n_failed_polls == POLL_FAILURES_BEFORE_WARNING
    }

    fn poll_interval(&self) -> Duration {
        let is_unconfirmed_failure = (1..POLL_FAILURES_BEFORE_WARNING).contains(&self.n_failed_polls);
        let is_active =
            is_unconfirmed_failure || self.last_change.is_some_and(|changed| changed.elapsed() < ACTIVE_PERIOD);
        if is_active { ACTIVE_POLL_INTERVAL } else { IDLE_POLL_INTERVAL }
    }

    /// Drops submissions that a poll which started at `began` has seen.
    fn forget_submissions_before(&mut self, began: Instant) {
        self.submissions.retain(|_, submission| !matches!(submission, Submission::Accepted(at) if *at < began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_squeue_is_logged_once_and_not_at_the_first_failure() {
        let mut state = State::default();
        assert_eq!(state.poll_interval(), IDLE_POLL_INTERVAL);
        assert!(!state.count_poll_failure());
        assert_eq!(state.poll_interval(), ACTIVE_POLL_INTERVAL, "the failure is confirmed soon");
        assert!(state.count_poll_failure());
        assert!(!state.count_poll_failure());
        assert_eq!(state.poll_interval(), IDLE_POLL_INTERVAL);
    }
}
