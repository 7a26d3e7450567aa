//! Statistics of optimizer steps in shared memory, which bypass the engine. The training thread updates atomic counters; the engine's thread
//! reads them for the status. A reader may see a step before its bytes, but never a decreasing total.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::coordinator::IncompleteOp;
use crate::transport::shm::segment::CommRegion;
use crate::transport::shm::step_sync::reached;

/// Name of such steps in the status: all gradients of a step are one operation.
pub const SHM_STEP_NAME: &str = "gradients (shared memory)";

/// Activity of the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Computing this rank's pass, or tasks of another rank.
    Computing = 0,
    /// Waiting for other ranks.
    Waiting = 1,
    /// Averaging gradients and stepping.
    Reducing = 2,
}

/// Counters of shared-memory steps. Times are relative to `began`.
#[derive(Debug)]
pub struct ShmStepStats {
    began: Instant,
    steps: AtomicU64,
    tensors_per_step: AtomicU64,
    bytes_per_step: AtomicU64,
    waited_nanos: AtomicU64,
    reduced_nanos: AtomicU64,
    /// End of the last step.
    ended_nanos: AtomicU64,
    /// Start of the current phase in nanoseconds, shifted left by 2, and the phase in the low 2 bits.
    phase: AtomicU64,
    progress: Mutex<Option<Progress>>,
}

/// Progress of all ranks.
#[derive(Debug)]
struct Progress {
    comm_region: Arc<CommRegion>,
    n_ranks: usize,
    /// Highest step count of any rank, and when it was first seen.
    furthest: u32,
    since: Duration,
}

/// Values of the counters at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmStepSnapshot {
    pub steps: u64,
    pub tensors: u64,
    pub bytes: u64,
    pub waited: Duration,
    pub reduced: Duration,
    pub tensors_per_step: u64,
    pub bytes_per_step: u64,
    pub ended: Duration,
    pub phase: Phase,
    pub since: Duration,
}

impl ShmStepStats {
    pub fn new(began: Instant) -> ShmStepStats {
        let zero = || AtomicU64::new(0);
        ShmStepStats {
            began,
            steps: zero(),
            tensors_per_step: zero(),
            bytes_per_step: zero(),
            waited_nanos: zero(),
            reduced_nanos: zero(),
            ended_nanos: zero(),
            phase: zero(),
            progress: Mutex::new(None),
        }
    }

    pub fn began(&self) -> Instant {
        self.began
    }

    /// Starts counting steps of this many tensors and bytes. The slots of `comm_region` hold the step counts of the ranks.
    pub fn start_steps(
        &self,
        tensors_per_step: usize,
        bytes_per_step: usize,
        comm_region: Arc<CommRegion>,
        n_ranks: usize,
    ) {
        self.tensors_per_step.store(tensors_per_step as u64, Ordering::Relaxed);
        self.bytes_per_step.store(bytes_per_step as u64, Ordering::Relaxed);
        let progress = Progress { comm_region, n_ranks, furthest: 0, since: self.began.elapsed() };
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Stops observing the other ranks, when the optimizer is dropped.
    pub fn stop_steps(&self) {
        self.enter_phase(Phase::Computing);
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Switches the phase of the training thread and adds the time of the previous one.
    pub fn enter_phase(&self, phase: Phase) {
        let now = self.began.elapsed().as_nanos() as u64;
        let before = self.phase.swap(now << 2 | phase as u64, Ordering::Relaxed);
        let took = now.saturating_sub(before >> 2);
        match phase_of(before) {
            Phase::Computing => {}
            Phase::Waiting => drop(self.waited_nanos.fetch_add(took, Ordering::Relaxed)),
            Phase::Reducing => drop(self.reduced_nanos.fetch_add(took, Ordering::Relaxed)),
        }
    }

    /// Excludes the time since `moment` from waiting, because it was spent on tasks of other ranks. The waiting phase continues.
    pub fn exclude_from_waiting(&self, moment: Instant) {
        let now = self.began.elapsed().as_nanos() as u64;
        let helped = moment.saturating_duration_since(self.began).as_nanos() as u64;
        let before = self.phase.swap(now << 2 | Phase::Waiting as u64, Ordering::Relaxed);
        self.waited_nanos.fetch_add(helped.saturating_sub(before >> 2), Ordering::Relaxed);
    }

    /// A step is complete on all ranks.
    pub fn end_step(&self) {
        self.enter_phase(Phase::Computing);
        self.ended_nanos.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Current values, including the running phase. `None` before the first step.
    pub fn snapshot(&self, now: Duration) -> Option<ShmStepSnapshot> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (steps, phase) = (load(&self.steps), load(&self.phase));
        if steps == 0 && phase_of(phase) == Phase::Computing {
            return None;
        }
        let (tensors_per_step, bytes_per_step) = (load(&self.tensors_per_step), load(&self.bytes_per_step));
        let since = Duration::from_nanos(phase >> 2);
        let running = |this| if phase_of(phase) == this { now.saturating_sub(since) } else { Duration::ZERO };
        Some(ShmStepSnapshot {
            steps,
            tensors: steps * tensors_per_step,
            bytes: steps * bytes_per_step,
            waited: Duration::from_nanos(load(&self.waited_nanos)) + running(Phase::Waiting),
            reduced: Duration::from_nanos(load(&self.reduced_nanos)) + running(Phase::Reducing),
            tensors_per_step,
            bytes_per_step,
            ended: Duration::from_nanos(load(&self.ended_nanos)),
            phase: phase_of(phase),
            since,
        })
    }

    /// Ranks that are behind the furthest one, as an operation that waits for them.
    pub fn oldest_incomplete(&self, now: Duration) -> Option<IncompleteOp> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Progress { comm_region, n_ranks, furthest, since } = progress.as_mut()?;
        let steps: Vec<u32> = (0..*n_ranks).map(|rank| comm_region.slot(rank).step.load(Ordering::Acquire)).collect();
        if let Some(further) = steps.iter().copied().reduce(|a, b| if reached(a, b) { a } else { b })
            && further != *furthest
        {
            (*furthest, *since) = (further, now);
        }
        let missing: Vec<u32> =
            (0..).zip(&steps).filter(|(_, step)| !reached(**step, *furthest)).map(|(rank, _)| rank).collect();
        (!missing.is_empty()).then(|| IncompleteOp { name: SHM_STEP_NAME.to_owned(), since: *since, missing })
    }
}

fn phase_of(word: u64) -> Phase {
    match word & 3 {
        1 => Phase::Waiting,
        2 => Phase::Reducing,
        _ => Phase::Computing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::segment::Segment;

    #[test]
    fn steps_bytes_and_waiting_are_added_up() {
        let steps = ShmStepStats::new(Instant::now());
        assert_eq!(steps.snapshot(Duration::ZERO), None);
        let segment = Segment::create(3).expect("a memory file");
        let comm_region = Arc::new(segment.comm_region(0).expect("a region"));
        steps.start_steps(5, 400, comm_region.clone(), 3);
        assert_eq!(steps.oldest_incomplete(Duration::from_secs(1)), None, "nobody has begun");
        for _ in 0..3 {
            steps.enter_phase(Phase::Waiting);
            let waiting = steps.snapshot(steps.began().elapsed() + Duration::from_secs(9)).expect("under way");
            assert!(waiting.phase == Phase::Waiting && waiting.waited >= Duration::from_secs(9));
            steps.enter_phase(Phase::Reducing);
            steps.end_step();
        }
        let snapshot = steps.snapshot(steps.began().elapsed()).expect("three steps");
        assert_eq!((snapshot.steps, snapshot.tensors, snapshot.bytes), (3, 15, 1200));
        assert_eq!((snapshot.phase, snapshot.tensors_per_step), (Phase::Computing, 5));
        assert!(snapshot.waited < Duration::from_secs(9) && snapshot.ended > Duration::ZERO, "{snapshot:?}");
    }

    #[test]
    fn tasks_of_other_ranks_do_not_count_as_waiting() {
        let steps = ShmStepStats::new(Instant::now() - Duration::from_secs(100));
        steps.enter_phase(Phase::Waiting);
        steps.exclude_from_waiting(steps.began() + Duration::from_secs(30));
        let snapshot = steps.snapshot(steps.began().elapsed()).expect("under way");
        assert!(snapshot.phase == Phase::Waiting && snapshot.waited < Duration::from_secs(60), "{snapshot:?}");
    }

    #[test]
    fn ranks_behind_the_furthest_are_missing() {
        let steps = ShmStepStats::new(Instant::now());
        let segment = Segment::create(3).expect("a memory file");
        let comm_region = Arc::new(segment.comm_region(0).expect("a region"));
        steps.start_steps(1, 4, comm_region.clone(), 3);
        let at = Duration::from_secs;
        comm_region.slot(1).step.store(1, Ordering::Release);
        let incomplete = steps.oldest_incomplete(at(5)).expect("two are behind");
        assert_eq!(
            (incomplete.missing, incomplete.since, incomplete.name.as_str()),
            (vec![0, 2], at(5), SHM_STEP_NAME)
        );
        comm_region.slot(2).step.store(1, Ordering::Release);
        let incomplete = steps.oldest_incomplete(at(7)).expect("one is behind");
        assert_eq!((incomplete.missing, incomplete.since), (vec![0], at(5)));
        comm_region.slot(0).step.store(1, Ordering::Release);
        assert_eq!(steps.oldest_incomplete(at(8)), None);
        steps.stop_steps();
        comm_region.slot(0).step.store(2, Ordering::Release);
        assert_eq!(steps.oldest_incomplete(at(9)), None);
    }
}
