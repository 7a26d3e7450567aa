//! A thread of the kernel's requests, each of which it works on until it is answered: with a runtime of its own, so that what it asks the server comes
//! back to it and to no other thread. What goes on after the answer is given to the mount's runtime.

use std::cell::RefCell;

use tokio::runtime::{Builder, Handle, Runtime};

thread_local! {
    static THREAD_RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Works on one request here. Where no runtime can be made, the mount's has to do.
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

/// Whether this is such a thread.
pub fn is_request_thread() -> bool {
    // Borrowed means that it is at work.
    THREAD_RUNTIME.with(|runtime| runtime.try_borrow_mut().is_err())
}
