//! The one place where the GIL is released: whoever waits for other ranks waits here, and looks for Ctrl-C several times a second. Knows
//! nothing of what is waited for.
//!
//! At the exit of the interpreter only daemon threads are left, and Python ends those of them that come back for the GIL by unwinding
//! their stack, which would abort the process when it meets frames of Rust. So they do not come back: from [`leave`] on they wait
//! until the process is gone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Between two looks for signals.
const SLICE: Duration = Duration::from_millis(100);
/// How long the exit waits for threads that are just coming back.
const COMING_BACK: Duration = Duration::from_secs(1);

/// The thread that ends the interpreter, once it does; 0 before. Not behind a lock: it is read without the GIL, also while others fork.
static LEAVING: AtomicUsize = AtomicUsize::new(0);
/// Threads that have seen nobody leave and are about to take the GIL.
static N_RETURNING: AtomicUsize = AtomicUsize::new(0);

/// Calls `step` without the GIL until it says that what it waits for is there; it waits for about the time it is given.
///
/// # Errors
/// What a signal's handler raised, such as KeyboardInterrupt.
pub fn until(py: Python<'_>, mut step: impl FnMut(Duration) -> bool + Send) -> PyResult<()> {
    loop {
        if detached(py, || step(SLICE)) {
            return Ok(());
        }
        py.check_signals()?;
    }
}

/// Calls `work` without the GIL, for what ends by itself before long.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let done = py.detach(|| {
        let done = work();
        N_RETURNING.fetch_add(1, Ordering::SeqCst);
        if is_left_behind() {
            N_RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        done
    });
    N_RETURNING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// From the interpreter's exit: no other thread comes back from waiting.
pub fn leave(py: Python<'_>) {
    LEAVING.store(this_thread(), Ordering::SeqCst);
    let deadline = Instant::now() + COMING_BACK;
    py.detach(|| {
        while N_RETURNING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// In a forked child, which has one thread only.
pub fn forget() {
    LEAVING.store(0, Ordering::SeqCst);
    N_RETURNING.store(0, Ordering::SeqCst);
}

fn is_left_behind() -> bool {
    let leaving = LEAVING.load(Ordering::SeqCst);
    leaving != 0 && leaving != this_thread()
}

/// No two threads that live have something at one address.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
