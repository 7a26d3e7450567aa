//! What this rank's engine does, for whoever looks at the job from outside: steps, bytes, the last operation, and how long it waited for the others.
//! The driver tells what happens, which costs a few additions; every tenth of a second it is written where it can be seen (`block`). Never
//! makes the engine wait, and never fails: without memory for the block, nothing is shown.

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

/// Between two writings.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Between two samples, and how many make the window of which shares are told.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const WINDOW_SAMPLES: usize = 10;

#[derive(Debug)]
pub struct EngineStatus {
    status_memfd: Option<StatusMemfd>,
    seq: u64,
    rank: usize,
    size: usize,
    totals: Totals,
    steps: StepCounter,
    /// What this rank does past the engine.
    shared: Arc<ShmStepStats>,
    /// Since when something of this rank waits for others.
    waiting_since: Option<Duration>,
    current_op: Option<CurrentOp>,
    last: Option<LastOp>,
    samples: VecDeque<(Duration, Totals)>,
    last_write: Duration,
}

/// Since the engine began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    operations: u64,
    tensors: u64,
    steps: u64,
    bytes: u64,
    /// With something asked for that not all others had asked for.
    waited: Duration,
    /// Performing what all had asked for.
    worked: Duration,
}

#[derive(Debug)]
struct CurrentOp {
    name: Arc<str>,
    kind: Kind,
    since: Duration,
}

#[derive(Debug)]
struct LastOp {
    name: Arc<str>,
    kind: Kind,
    n_tensors: usize,
    bytes: u64,
    ended: Duration,
}

/// What the driver knows besides, at the moment of writing.
#[derive(Debug, Default)]
pub struct StatusExtras<'a> {
    /// What this rank waits for longest, and since when.
    pub pending: Option<(&'a str, Duration)>,
    /// On rank 0.
    pub oldest_incomplete: Option<IncompleteOp>,
    /// Its number, and whether it is done.
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

    /// So many of this rank's requests are not agreed on.
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

    /// All have asked; the operation begins.
    pub fn begin(&mut self, kind: Kind, tensors: &[NegotiatedTensor], now: Duration) {
        self.set_pending(0, now);
        self.current_op =
            tensors.first().map(|first| CurrentOp { name: first.response.name.clone(), kind, since: now });
    }

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

    pub fn is_due(&self, now: Duration) -> bool {
        self.status_memfd.is_some() && now.saturating_sub(self.last_write) >= WRITE_INTERVAL
    }

    /// Makes it to be seen.
    pub fn write(&mut self, extras: &StatusExtras<'_>, now: Duration) {
        self.seq += 1;
        self.last_write = now;
        let totals = self.totals_at(now);
        self.merge_shm_steps(now);
        let json = json::render(self, totals, extras, now);
        if let Some(status_memfd) = &mut self.status_memfd {
            // A page of memory that was there before; and if not, nobody sees us.
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

    /// What somebody outside asks for.
    pub fn record_request(&self) -> Option<RecordRequest> {
        self.status_memfd.as_ref().and_then(StatusMemfd::record_request)
    }

    /// Nothing more is to be seen here.
    pub fn close(&mut self) {
        self.status_memfd = None;
    }

    /// What this rank waits for in shared memory, and since when.
    pub fn shm_wait(&self, now: Duration) -> Option<(&'static str, Duration)> {
        let snapshot = self.shared.snapshot(now).filter(|snapshot| snapshot.phase == Phase::Waiting)?;
        Some((SHM_STEP_NAME, snapshot.since))
    }

    /// The last operation is a step in shared memory, if that came later.
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

    /// With what is under way, and what is done in shared memory. There every step is told; what is reduced besides, once an epoch for
    /// example, is none.
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
