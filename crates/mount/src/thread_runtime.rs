//! A single-threaded runtime for each FUSE request thread: a thread handles a request until it is answered, and the
//! server's answers arrive on the same thread. Work after the answer goes to the mount's shared runtime.

use std::cell::RefCell;

use tokio::runtime::{Builder, Handle, Runtime};

thread_local! {
    static THREAD_RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Runs the work on this thread's runtime, or on `fallback` if none can be created.
pub fn block_on<T>(fallback: &Handle, work: impl Future<Output = T>) -> T {
    THREAD_RUNTIME.with_borrow_mut(|runtime| {
        if runtime.is_none() {
            *runtime = Builder::new_current_thread().enable_all().build().ok();
        }
        match runtime {
            Some(own) => own.block_on(work),
            None => fallback.block_on(work),
        }
    })
}

/// Whether this thread is handling a request.
pub fn is_request_thread() -> bool {
    // Borrowed while `block_on` is running.
    THREAD_RUNTIME.with(|runtime| runtime.try_borrow_mut().is_err())
}
