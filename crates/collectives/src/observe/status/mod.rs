//! What this rank's engine does, for whoever looks at the job from outside: steps, bytes, the last operation, and how long it waited for the others.
//! The driver tells what happens, which costs a few additions; every tenth of a second it is written where it can be seen (`block`). Never
//! makes the engine wait, and never fails: without memory for the block, nothing is shown.

pub mod block;
mod steps;
mod text;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::coordinator::{Awaited, Kind, Tensor};
use crate::observe::shared_steps::{self, Phase, SharedSteps};
use block::{Block, Wish};
use steps::Steps;

/// Between two writings.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Between two samples, and how many make the window of which shares are told.
const SAMPLE: Duration = Duration::from_secs(1);
const N_SAMPLES: usize = 10;

#[derive(Debug)]
pub struct Status {
    block: Option<Block>,
    seq: u64,
    rank: usize,
    size: usize,
    totals: Totals,
    steps: Steps,
    /// What this rank does past the engine.
    shared: Arc<SharedSteps>,
    /// Since when something of this rank waits for others.
    waiting_since: Option<Duration>,
    working: Option<Working>,
    last: Option<Last>,
    samples: VecDeque<(Duration, Totals)>,
    written: Duration,
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
struct Working {
    name: Arc<str>,
    kind: Kind,
    since: Duration,
}

#[derive(Debug)]
struct Last {
    name: Arc<str>,
    kind: Kind,
    n_tensors: usize,
    bytes: u64,
    ended: Duration,
}

/// What the driver knows besides, at the moment of writing.
#[derive(Debug, Default)]
pub struct Besides<'a> {
    /// What this rank waits for longest, and since when.
    pub pending: Option<(&'a str, Duration)>,
    /// On rank 0.
    pub awaited: Option<Awaited>,
    /// Its number, and whether it is done.
    pub recording: Option<(u64, bool)>,
}

impl Status {
    pub fn new(rank: usize, size: usize, shared: Arc<SharedSteps>) -> Status {
        Status {
            block: Block::create().ok(),
            seq: 0,
            rank,
            size,
            totals: Totals::default(),
            steps: Steps::new(),
            shared,
            waiting_since: None,
            working: None,
            last: None,
            samples: VecDeque::with_capacity(N_SAMPLES),
            written: Duration::ZERO,
        }
    }

    /// So many of this rank's requests are not agreed on.
    pub fn pending(&mut self, n_pending: usize, now: Duration) {
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
    pub fn begin(&mut self, kind: Kind, tensors: &[Tensor], now: Duration) {
        self.pending(0, now);
        self.working = tensors.first().map(|first| Working { name: first.agreed.name.clone(), kind, since: now });
    }

    pub fn end(&mut self, tensors: &[Tensor], bytes: u64, n_pending: usize, now: Duration) {
        let Some(Working { name, kind, since }) = self.working.take() else { return };
        if let Kind::Allreduce | Kind::Adasum | Kind::Reducescatter = kind {
            tensors.iter().for_each(|tensor| self.steps.note(&tensor.agreed.name));
        }
        self.totals.operations += 1;
        self.totals.tensors += tensors.len() as u64;
        self.totals.steps = self.steps.count;
        self.totals.bytes += bytes;
        self.totals.worked += now.saturating_sub(since);
        self.last = Some(Last { name, kind, n_tensors: tensors.len(), bytes, ended: now });
        self.pending(n_pending, now);
    }

    pub fn is_due(&self, now: Duration) -> bool {
        self.block.is_some() && now.saturating_sub(self.written) >= INTERVAL
    }

    /// Makes it to be seen.
    pub fn write(&mut self, besides: &Besides<'_>, now: Duration) {
        self.seq += 1;
        self.written = now;
        let totals = self.totals_at(now);
        self.show_shared(now);
        let text = text::of(self, totals, besides, now);
        if let Some(block) = &mut self.block {
            // A page of memory that was there before; and if not, nobody sees us.
            let _ = block.write(&text);
        }
        if self.samples.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= SAMPLE) {
            self.samples.truncate(N_SAMPLES);
            if self.samples.len() == N_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back((now, totals));
        }
    }

    /// What somebody outside asks for.
    pub fn wish(&self) -> Option<Wish> {
        self.block.as_ref().and_then(Block::wish)
    }

    /// Nothing more is to be seen here.
    pub fn close(&mut self) {
        self.block = None;
    }

    /// What this rank waits for in shared memory, and since when.
    pub fn awaits_in_shared_memory(&self, now: Duration) -> Option<(&'static str, Duration)> {
        let counted = self.shared.counted(now).filter(|counted| counted.phase == Phase::Waiting)?;
        Some((shared_steps::NAME, counted.since))
    }

    /// The last operation is a step in shared memory, if that came later.
    fn show_shared(&mut self, now: Duration) {
        let Some(counted) = self.shared.counted(now).filter(|counted| counted.steps > 0) else { return };
        if self.last.as_ref().is_none_or(|last| last.ended <= counted.ended) {
            self.last = Some(Last {
                name: shared_steps::NAME.into(),
                kind: Kind::Allreduce,
                n_tensors: counted.tensors_per_step as usize,
                bytes: counted.bytes_per_step,
                ended: counted.ended,
            });
        }
    }

    /// With what is under way, and what is done in shared memory. There every step is told; what is reduced besides, once an epoch for
    /// example, is none.
    fn totals_at(&self, now: Duration) -> Totals {
        let open = |since: Option<Duration>| since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let mut totals = Totals {
            waited: self.totals.waited + open(self.waiting_since),
            worked: self.totals.worked + open(self.working.as_ref().map(|working| working.since)),
            ..self.totals
        };
        if let Some(counted) = self.shared.counted(now) {
            totals.operations += counted.steps;
            totals.tensors += counted.tensors;
            totals.steps = counted.steps;
            totals.bytes += counted.bytes;
            totals.waited += counted.waited;
            totals.worked += counted.reduced;
        }
        totals
    }
}

#[cfg(test)]
mod tests;
