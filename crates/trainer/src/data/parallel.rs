//! Parallel map over all CPUs, for work that is done once before the first step: unpacking, verifying and drawing
//! images.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

/// Runs all jobs on at most as many threads as there are CPUs and returns the results in order.
pub fn map<J: Send, R: Send>(jobs: Vec<J>, work: impl Fn(J) -> R + Sync) -> Vec<R> {
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let next = || queue.lock().expect("taking a job does not panic").next();
    let drain = || std::iter::from_fn(next).map(|(index, job)| (index, work(job))).collect::<Vec<_>>();
    let mut results = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(drain)).collect();
        let joined = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Vec<_>>()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once_and_results_are_in_order() {
        assert_eq!(map((0..100).collect(), |job| job * 2), (0..100).map(|job| job * 2).collect::<Vec<_>>());
        assert!(map(Vec::<u8>::new(), |job| job).is_empty());
    }

    #[test]
    #[should_panic(expected = "job 3")]
    fn a_panic_is_propagated() {
        map((0..5).collect(), |job| assert!(job != 3, "job {job}"));
    }
}
