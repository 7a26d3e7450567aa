//! Threads that serve connections, one for each processor. A connection stays with the thread it was given to, from its first request to its last:
//! a small request is read, answered and written without waking anybody else, which costs more than the request. What takes long runs
//! on other threads anyway (`spawn_blocking`). Entered by the listener.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// They end when this is dropped, with whatever is still on them.
pub struct Lanes {
    lanes: Vec<Lane>,
    next: usize,
}

struct Lane {
    handle: Handle,
    _open: oneshot::Sender<()>,
}

impl Lanes {
    pub fn start() -> io::Result<Lanes> {
        let n = thread::available_parallelism().map_or(1, usize::from);
        let lanes = (0..n).map(Lane::start).collect::<io::Result<_>>()?;
        Ok(Lanes { lanes, next: 0 })
    }

    /// Where the next connection goes: each gets one in turn.
    pub fn next(&mut self) -> Handle {
        self.next = (self.next + 1) % self.lanes.len();
        self.lanes[self.next].handle.clone()
    }
}

impl Lane {
    fn start(number: usize) -> io::Result<Lane> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (open, closed)) = (runtime.handle().clone(), oneshot::channel());
        thread::Builder::new().name(format!("lane-{number}")).spawn(move || {
            let _ = runtime.block_on(closed);
            runtime.shutdown_background();
        })?;
        Ok(Lane { handle, _open: open })
    }
}
