//! Where those wait who have come through a listener and are yet to prove themselves. Everyone has a thread of its own meanwhile, so
//! that a stranger who says nothing keeps nobody waiting. Entered by `tcp` and `local`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::Shutdown;

use crate::transport::connect::time_left;

/// `T`: what a visitor has turned out to be.
pub struct Reception<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    /// Rung when somebody has proved itself.
    bell: OwnedFd,
}

struct State<T> {
    next: u64,
    /// A second handle of each, to end its waiting.
    inside: HashMap<u64, OwnedFd>,
    known: Vec<T>,
}

/// Further visitors are turned away, and may come again.
const MOST_INSIDE: usize = 512;
/// Who listens beside us may have taken what woke us.
const NAP: Duration = Duration::from_millis(100);

impl<T: Send + 'static> Reception<T> {
    pub fn open() -> io::Result<Reception<T>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State { next: 0, inside: HashMap::new(), known: Vec::new() };
        Ok(Reception { inner: Arc::new(Inner { state: Mutex::new(state), bell }) })
    }

    /// `welcome` finds out who it is, within limits of its own; a stranger is `None` and has been hung up on.
    pub fn admit<S: AsFd + Send + 'static>(
        &self,
        stream: S,
        welcome: impl FnOnce(S) -> Option<T> + Send + 'static,
    ) -> io::Result<()> {
        let ticket = {
            let mut state = self.inner.lock();
            if state.inside.len() >= MOST_INSIDE {
                return Ok(());
            }
            state.next += 1;
            let ticket = state.next;
            state.inside.insert(ticket, stream.as_fd().try_clone_to_owned()?);
            ticket
        };
        let inner = self.inner.clone();
        let work = move || {
            let known = welcome(stream);
            let mut state = inner.lock();
            state.inside.remove(&ticket);
            state.known.extend(known);
            let _ = rustix::io::write(&inner.bell, &1u64.to_ne_bytes());
        };
        std::thread::Builder::new().name("corro-welcome".into()).spawn(work).map(drop)
    }

    /// Those who have become known since the last time.
    pub fn known(&self) -> Vec<T> {
        std::mem::take(&mut self.inner.lock().known)
    }

    /// Until somebody may have come through `listener`, or somebody inside may have become known.
    pub fn wait(&self, listener: impl AsFd, deadline: Instant) -> io::Result<()> {
        let nap = time_left(deadline).min(NAP);
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&self.inner.bell, PollFlags::IN)];
        match poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&self.inner.bell, &mut [0; 8]);
        Ok(())
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Reception<T> {
    fn drop(&mut self) {
        for stranger in self.inner.lock().inside.values() {
            let _ = rustix::net::shutdown(stranger, Shutdown::Both);
        }
    }
}
