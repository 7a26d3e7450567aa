//! The compute threads of one rank: a fixed pool that repeatedly executes one closure on all threads, without scheduler
//! latency in between. Each thread gets its number; the distribution of work is up to the closure.
//!
//! The caller is one of the threads. The others, the workers, wait for the next round: they spin briefly, since the
//! next round of a step starts within microseconds, then park, since other ranks may need the CPU.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Spin time before parking: longer than the gap between two rounds of a step, short enough to waste little CPU.
const SPIN_TIME: Duration = Duration::from_micros(20);

/// A pool of threads, the caller included.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Serialises rounds of concurrent callers.
    round_lock: Mutex<()>,
}

type Work = dyn Fn(usize) + Sync;

struct Shared {
    /// Number of rounds started. A worker that sees a higher number than that of its last round has work.
    round: AtomicU64,
    /// Workers that have not finished this round.
    busy: AtomicUsize,
    closing: AtomicBool,
    job: Mutex<Option<RoundWork>>,
    /// The first panic of this round.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone)]
struct RoundWork {
    /// Valid only during this round, despite the lifetime: see [`ThreadPool::run`].
    work: &'static Work,
    caller: Thread,
}

impl ThreadPool {
    /// A pool of `n` threads, of which `n - 1` are started. Zero counts as one.
    pub fn new(n: usize) -> ThreadPool {
        let shared = Arc::new(Shared {
            round: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            job: Mutex::new(None),
            panic: Mutex::new(None),
        });
        let start = |index: usize| {
            let shared = shared.clone();
            let name = format!("compute-{index}");
            thread::Builder::new().name(name).spawn(move || shared.worker_loop(index)).expect("a compute thread starts")
        };
        let workers = (1..n).map(start).collect();
        ThreadPool { shared, workers, round_lock: Mutex::new(()) }
    }

    #[expect(clippy::len_without_is_empty, reason = "there is always the caller")]
    pub fn len(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` on every thread with its number, 0 for the caller, and returns when all have finished. A panic in
    /// any of them is propagated to the caller. Must not be called from inside of `work`.
    pub fn run(&self, work: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return work(0);
        }
        let _turn = lock(&self.round_lock);
        // SAFETY: only the lifetime is changed. Workers use the reference between the start of this round and their
        // decrement of `busy`, and this function neither returns nor unwinds before `busy` is zero.
        let forever = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Work>(work) };
        *lock(&self.shared.job) = Some(RoundWork { work: forever, caller: thread::current() });
        self.shared.busy.store(self.workers.len(), Ordering::Relaxed);
        self.shared.round.fetch_add(1, Ordering::Release);
        self.workers.iter().for_each(|worker| worker.thread().unpark());

        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        spin_then_park(|| self.shared.busy.load(Ordering::Acquire) == 0);
        let others = lock(&self.shared.panic).take();
        if let Some(panic) = own.err().or(others) {
            resume_unwind(panic);
        }
    }

    /// Calls `work` with the number of a thread and of a task, once for every task below `tasks`. Free threads claim
    /// the next task.
    pub fn for_each_task(&self, tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let take = |thread| loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            work(thread, task);
        };
        if tasks == 1 { take(0) } else { self.run(&take) }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            worker.join().expect("workers catch panics");
        }
    }
}

impl Shared {
    /// Main loop of a worker.
    fn worker_loop(&self, index: usize) {
        let mut last_round = 0;
        loop {
            spin_then_park(|| self.round.load(Ordering::Acquire) != last_round || self.closing.load(Ordering::Acquire));
            if self.round.load(Ordering::Acquire) == last_round {
                return;
            }
            last_round += 1;
            let RoundWork { work, caller } = lock(&self.job).clone().expect("a round has a job");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(index))) {
                lock(&self.panic).get_or_insert(panic);
            }
            if self.busy.fetch_sub(1, Ordering::Release) == 1 {
                caller.unpark();
            }
        }
    }
}

/// Waits until `is_done`: spins for a while, then parks until another thread unparks this one.
fn spin_then_park(is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while start.elapsed() < SPIN_TIME {
        for _ in 0..8 {
            if is_done() {
                return;
            }
            std::hint::spin_loop();
        }
    }
    while !is_done() {
        thread::park();
    }
}

/// Ignores poisoning: no code panics while one of these locks is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_once_per_round() {
        for n in [1, 2, 3, 5] {
            let pool = ThreadPool::new(n);
            let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..=200 {
                pool.run(&|thread| {
                    counts[thread].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|count| count.load(Ordering::Relaxed) == round),
                    "{n} threads, round {round}"
                );
            }
            assert_eq!(pool.len(), n);
        }
    }

    #[test]
    fn a_panic_is_propagated_and_the_pool_survives() {
        let pool = ThreadPool::new(3);
        for culprit in 0..3 {
            let run = || pool.run(&|thread| assert!(thread != culprit, "thread {thread}"));
            let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("one thread panicked");
            let message = panic.downcast_ref::<String>().expect("a formatted message");
            assert_eq!(*message, format!("thread {culprit}"));
        }
        let ended = AtomicUsize::new(0);
        pool.run(&|_| {
            ended.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ended.into_inner(), 3);
    }

    #[test]
    fn every_task_runs_once() {
        let pool = ThreadPool::new(3);
        for tasks in [0, 1, 2, 3, 100] {
            let done: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each_task(tasks, &|_, task| {
                done[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{tasks} tasks");
        }
    }

    #[test]
    fn concurrent_callers_are_serialised() {
        let (pool, sum) = (ThreadPool::new(2), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(&|thread| {
                            sum.fetch_add(thread + 1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 100 * 3);
    }
}
