//! Threads that serve connections, one for each processor. A connection stays with the thread it was given to, from its first request to its last:
//! a small request is read, answered and written without waking anybody else, which costs more than the request. What takes long runs
//! on other threads anyway (`spawn_blocking`). Entered by the listener.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// They end when this is dropped, with whatever is still on them.
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

    /// Where the next connection goes: each gets one in turn.
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
