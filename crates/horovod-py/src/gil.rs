//! Releases the GIL while a thread waits for other ranks, and checks for signals (Ctrl-C) several times per second. The
//! only module that releases it.
//!
//! At interpreter exit only daemon threads are left. Python ends those that try to acquire the GIL by unwinding their
//! stack, which aborts the process at Rust frames. After [`at_exit`] such threads therefore park until the process
//! ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Interval between two checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time that the exit waits for threads that are about to acquire the GIL.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// The thread that ends the interpreter; 0 before. Atomic, since it is read without the GIL, also while another thread
/// forks.
static EXITING_THREAD: AtomicUsize = AtomicUsize::new(0);
/// Threads that saw no exit and are about to acquire the GIL.
static N_ACQUIRING: AtomicUsize = AtomicUsize::new(0);

/// Calls `step` without the GIL until it returns true; `step` waits for about the given time.
///
/// # Errors
///
/// The exception raised by a signal handler, such as KeyboardInterrupt.
pub fn wait_released(py: Python<'_>, mut step: impl FnMut(Duration) -> bool + Send) -> PyResult<()> {
    loop {
        if run_released(py, || step(SIGNAL_CHECK_INTERVAL)) {
            return Ok(());
        }
        py.check_signals()?;
    }
}

/// Calls `work` without the GIL. For work that ends soon on its own.
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

/// Called at interpreter exit. Afterwards no other thread returns from a wait.
pub fn at_exit(py: Python<'_>) {
    EXITING_THREAD.store(this_thread(), Ordering::SeqCst);
    let deadline = Instant::now() + EXIT_GRACE;
    py.detach(|| {
        while N_ACQUIRING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Called in a forked child, which has only one thread.
pub fn after_fork() {
    EXITING_THREAD.store(0, Ordering::SeqCst);
    N_ACQUIRING.store(0, Ordering::SeqCst);
}

fn must_park() -> bool {
    let exiting = EXITING_THREAD.load(Ordering::SeqCst);
    exiting != 0 && exiting != this_thread()
}

/// Address of a thread-local variable, unique among living threads.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
