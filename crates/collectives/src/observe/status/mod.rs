//! Status of this rank's engine for observers outside the process: steps, bytes, the last operation, and time spent waiting for other ranks.
//! Updates cost a few additions. Every 100 ms the status is written to a memfd (`status_memfd`). Never blocks and never fails: without the
//! memfd there is no status.

mod json;
pub mod status_memfd;
mod step_counter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::coordinator::{IncompleteOp, Kind, NegotiatedTensor};
use crate::observe::shm_step_stats::{Phase, SHM_STEP_NAME, ShmStepStats};
use status_memfd::{RecordRequest, StatusMemfd};
use step_counter::StepCounter;

/// Shortest interval between two writes.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between samples of the totals.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Samples kept; the status has the totals since the oldest as a sliding window.
const WINDOW_SAMPLES: usize = 10;

/// Counters and current operation of one engine. Times are on the engine's clock.
#[derive(Debug)]
pub struct EngineStatus {
    status_memfd: Option<StatusMemfd>,
    /// Number of writes; lets readers detect a torn read.
    seq: u64,
    rank: usize,
    size: usize,
    totals: Totals,
    steps: StepCounter,
    /// Steps in shared memory, which bypass the engine.
    shared: Arc<ShmStepStats>,
    /// Start of the current wait for other ranks.
    waiting_since: Option<Duration>,
    current_op: Option<CurrentOp>,
    last: Option<LastOp>,
    samples: VecDeque<(Duration, Totals)>,
    last_write: Duration,
}

/// Totals since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    operations: u64,
    tensors: u64,
    steps: u64,
    bytes: u64,
    /// Time with a pending request that not all other ranks had made.
    waited: Duration,
    /// Time executing operations.
    worked: Duration,
}

/// Operation being executed.
#[derive(Debug)]
struct CurrentOp {
    name: Arc<str>,
    kind: Kind,
    since: Duration,
}

/// Last completed operation.
#[derive(Debug)]
struct LastOp {
    name: Arc<str>,
    kind: Kind,
    n_tensors: usize,
    bytes: u64,
    ended: Duration,
}

/// Further content of the status that the caller supplies at each write.
#[derive(Debug, Default)]
pub struct StatusExtras<'a> {
    /// Oldest pending operation of this rank, and when it was submitted.
    pub pending: Option<(&'a str, Duration)>,
    /// Oldest operation that waits for ranks. On rank 0 only.
    pub oldest_incomplete: Option<IncompleteOp>,
    /// Number of the current or last recording, and whether it is complete.
    pub recording: Option<(u64, bool)>,
}

impl EngineStatus {
    pub fn new(rank: usize, size: usize, shared: Arc<ShmStepStats>) -> EngineStatus {
        EngineStatus {
            status_memfd: StatusMemfd::create().ok(),
            seq: 0,
            rank,
            size,
            totals: Totals::default(),
            steps: StepCounter::new(),
            shared,
            waiting_since: None,
            current_op: None,
            last: None,
            samples: VecDeque::with_capacity(WINDOW_SAMPLES),
            last_write: Duration::ZERO,
        }
    }

    /// Sets the number of this rank's pending requests.
    pub fn set_pending(&mut self, n_pending: usize, now: Duration) {
        match (n_pending, self.waiting_since) {
            (0, Some(since)) => {
                self.totals.waited += now.saturating_sub(since);
                self.waiting_since = None;
            }
            (1.., None) => self.waiting_since = Some(now),
            _ => {}
        }
    }

    /// An operation starts: all ranks have requested it.
    pub fn begin(&mut self, kind: Kind, tensors: &[NegotiatedTensor], now: Duration) {
        self.set_pending(0, now);
        self.current_op =
            tensors.first().map(|first| CurrentOp { name: first.response.name.clone(), kind, since: now });
    }

    /// The operation is over.
    pub fn end(&mut self, tensors: &[NegotiatedTensor], bytes: u64, n_pending: usize, now: Duration) {
        let Some(CurrentOp { name, kind, since }) = self.current_op.take() else { return };
        if let Kind::Allreduce | Kind::Adasum | Kind::Reducescatter = kind {
            tensors.iter().for_each(|tensor| self.steps.on_tensor(&tensor.response.name));
        }
        self.totals.operations += 1;
        self.totals.tensors += tensors.len() as u64;
        self.totals.steps = self.steps.count;
        self.totals.bytes += bytes;
        self.totals.worked += now.saturating_sub(since);
        self.last = Some(LastOp { name, kind, n_tensors: tensors.len(), bytes, ended: now });
        self.set_pending(n_pending, now);
    }

    /// True if the status should be written.
    pub fn is_due(&self, now: Duration) -> bool {
        self.status_memfd.is_some() && now.saturating_sub(self.last_write) >= WRITE_INTERVAL
    }

    /// Writes the status to the memfd.
    pub fn write(&mut self, extras: &StatusExtras<'_>, now: Duration) {
        self.seq += 1;
        self.last_write = now;
        let totals = self.totals_at(now);
        self.merge_shm_steps(now);
        let json = json::render(self, totals, extras, now);
        if let Some(status_memfd) = &mut self.status_memfd {
            // Cannot fail for an existing page of a memfd; if it does, readers see the last status.
            let _ = status_memfd.write(&json);
        }
        if self.samples.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= SAMPLE_INTERVAL) {
            self.samples.truncate(WINDOW_SAMPLES);
            if self.samples.len() == WINDOW_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back((now, totals));
        }
    }

    /// Recording requested by an observer.
    pub fn record_request(&self) -> Option<RecordRequest> {
        self.status_memfd.as_ref().and_then(StatusMemfd::record_request)
    }

    /// Removes the status.
    pub fn close(&mut self) {
        self.status_memfd = None;
    }

    /// Shared-memory step that this rank waits for, and since when.
    pub fn shm_wait(&self, now: Duration) -> Option<(&'static str, Duration)> {
        let snapshot = self.shared.snapshot(now).filter(|snapshot| snapshot.phase == Phase::Waiting)?;
        Some((SHM_STEP_NAME, snapshot.since))
    }

    /// Replaces the last operation by the last shared-memory step if that is newer.
    fn merge_shm_steps(&mut self, now: Duration) {
        let Some(snapshot) = self.shared.snapshot(now).filter(|snapshot| snapshot.steps > 0) else { return };
        if self.last.as_ref().is_none_or(|last| last.ended <= snapshot.ended) {
            self.last = Some(LastOp {
                name: SHM_STEP_NAME.into(),
                kind: Kind::Allreduce,
                n_tensors: snapshot.tensors_per_step as usize,
                bytes: snapshot.bytes_per_step,
                ended: snapshot.ended,
            });
        }
    }

    /// Totals including running intervals and shared-memory steps. With shared-memory steps only those count as steps; other reductions, for
    /// example once per epoch, do not.
    fn totals_at(&self, now: Duration) -> Totals {
        let open = |since: Option<Duration>| since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let mut totals = Totals {
            waited: self.totals.waited + open(self.waiting_since),
            worked: self.totals.worked + open(self.current_op.as_ref().map(|current_op| current_op.since)),
            ..self.totals
        };
        if let Some(snapshot) = self.shared.snapshot(now) {
            totals.operations += snapshot.steps;
            totals.tensors += snapshot.tensors;
            totals.steps = snapshot.steps;
            totals.bytes += snapshot.bytes;
            totals.waited += snapshot.waited;
            totals.worked += snapshot.reduced;
        }
        totals
    }
}

#[cfg(test)]
mod tests;
