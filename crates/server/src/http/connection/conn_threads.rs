//! Threads that serve connections: a single-threaded runtime per core. A connection stays on its thread, so that a small request is
//! read, handled and answered without waking another thread, which would cost more than the request. Slow work runs on blocking
//! threads (`spawn_blocking`).

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// One runtime per core. Dropping it ends the threads and whatever still runs on them.
pub struct PerCoreRuntimes {
    runtimes: Vec<CoreRuntime>,
    next: usize,
}

struct CoreRuntime {
    handle: Handle,
    _shutdown: oneshot::Sender<()>,
}

impl PerCoreRuntimes {
    pub fn start() -> io::Result<PerCoreRuntimes> {
        let n = thread::available_parallelism().map_or(1, usize::from);
        let runtimes = (0..n).map(CoreRuntime::start).collect::<io::Result<_>>()?;
        Ok(PerCoreRuntimes { runtimes, next: 0 })
    }

    /// Runtime for the next connection, round-robin.
    pub fn next(&mut self) -> Handle {
        self.next = (self.next + 1) % self.runtimes.len();
        self.runtimes[self.next].handle.clone()
    }
}

impl CoreRuntime {
    fn start(number: usize) -> io::Result<CoreRuntime> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (shutdown, closed)) = (runtime.handle().clone(), oneshot::channel());
        thread::Builder::new().name(format!("http-{number}")).spawn(move || {
            let _ = runtime.block_on(closed);
            runtime.shutdown_background();
        })?;
        Ok(CoreRuntime { handle, _shutdown: shutdown })
    }
}
