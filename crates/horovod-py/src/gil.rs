//! The one place where the GIL is released: whoever waits for other ranks waits here, and looks for Ctrl-C several times a second. Knows
//! nothing of what is waited for.
//!
//! At the exit of the interpreter only daemon threads are left, and Python ends those of them that come back for the GIL by unwinding
//! their stack, which would abort the process when it meets frames of Rust. So they do not come back: from [`at_exit`] on they wait
//! until the process is gone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Between two looks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the exit waits for threads that are just coming back.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// The thread that ends the interpreter, once it does; 0 before. Not behind a lock: it is read without the GIL, also while others fork.
static EXITING_THREAD: AtomicUsize = AtomicUsize::new(0);
/// Threads that have seen nobody leave and are about to take the GIL.
static N_ACQUIRING: AtomicUsize = AtomicUsize::new(0);

/// Calls `step` without the GIL until it says that what it waits for is there; it waits for about the time it is given.
///
/// # Errors
/// What a signal's handler raised, such as KeyboardInterrupt.
pub fn wait_released(py: Python<'_>, mut step: impl FnMut(Duration) -> bool + Send) -> PyResult<()> {
    loop {
        if run_released(py, || step(SIGNAL_CHECK_INTERVAL)) {
            return Ok(());
        }
        py.check_signals()?;
    }
}

/// Calls `work` without the GIL, for what ends by itself before long.
pub fn run_released<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let done = py.detach(|| {
        let done = work();
        N_ACQUIRING.fetch_add(1, Ordering::SeqCst);
        if must_park() {
            N_ACQUIRING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        done
    });
    N_ACQUIRING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// From the interpreter's exit: no other thread comes back from waiting.
pub fn at_exit(py: Python<'_>) {
    EXITING_THREAD.store(this_thread(), Ordering::SeqCst);
    let deadline = Instant::now() + EXIT_GRACE;
    py.detach(|| {
        while N_ACQUIRING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// In a forked child, which has one thread only.
pub fn after_fork() {
    EXITING_THREAD.store(0, Ordering::SeqCst);
    N_ACQUIRING.store(0, Ordering::SeqCst);
}

fn must_park() -> bool {
    let exiting = EXITING_THREAD.load(Ordering::SeqCst);
    exiting != 0 && exiting != this_thread()
}

/// No two threads that live have something at one address.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
