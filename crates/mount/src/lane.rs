//! A thread of the kernel's requests, each of which it works on until it is answered: with a runtime of its own, so that what it asks the server comes
//! back to it and to no other thread. What goes on after the answer is given to the mount's runtime.

use std::cell::RefCell;

use tokio::runtime::{Builder, Handle, Runtime};

thread_local! {
    static OWN: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Works on one request here. Where no runtime can be made, the mount's has to do.
pub fn wait<T>(common: &Handle, work: impl Future<Output = T>) -> T {
    OWN.with_borrow_mut(|own| {
        if own.is_none() {
            *own = Builder::new_current_thread().enable_all().build().ok();
        }
        match own {
            Some(runtime) => runtime.block_on(work),
            None => common.block_on(work),
        }
    })
}

/// Whether this is such a thread.
pub fn is_here() -> bool {
    // Borrowed means that it is at work.
    OWN.with(|own| own.try_borrow_mut().is_err())
}
