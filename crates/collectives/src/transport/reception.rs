//! Where those wait who have come through a listener and are yet to prove themselves. Everyone has a thread of its own meanwhile, so
//! that a stranger who says nothing keeps nobody waiting. Entered by `tcp` and `local`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::Shutdown;

use crate::fork::ForkClosed;
use crate::transport::connect::time_left;

/// `T`: what a visitor has turned out to be.
pub struct Reception<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    /// Rung when somebody has proved itself.
    bell: ForkClosed<OwnedFd>,
}

struct State<T> {
    next: u64,
    /// A second handle of each, to end its waiting.
    inside: HashMap<u64, ForkClosed<OwnedFd>>,
    known: Vec<T>,
}

/// Beyond it the oldest that has not proved itself is hung up on, so that strangers keep no rank out.
const MOST_INSIDE: usize = 512;
/// Who listens beside us may have taken what woke us.
const NAP: Duration = Duration::from_millis(100);

impl<T: Send + 'static> Reception<T> {
    pub fn open() -> io::Result<Reception<T>> {
        let bell = ForkClosed::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
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
            if state.inside.len() >= MOST_INSIDE
                && let Some(oldest) = state.inside.keys().min().copied()
                && let Some(stranger) = state.inside.remove(&oldest)
            {
                // Its thread reads the end of the stream, and ends.
                let _ = rustix::net::shutdown(&stranger, Shutdown::Both);
            }
            state.next += 1;
            let ticket = state.next;
            state.inside.insert(ticket, ForkClosed::new(stream.as_fd().try_clone_to_owned()?));
            ticket
        };
        let inner = self.inner.clone();
        let work = move || {
            let known = welcome(stream);
            let mut state = inner.lock();
            // One that was hung up on meanwhile has a dead stream, whatever it proved.
            if state.inside.remove(&ticket).is_some() {
                state.known.extend(known);
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn strangers_that_say_nothing_keep_no_rank_out() {
        let reception = Reception::<u8>::open().expect("a reception");
        let admit = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let welcome = |mut stream: UnixStream| {
                let mut said = [0];
                stream.read_exact(&mut said).ok().map(|()| said[0])
            };
            reception.admit(ours, welcome).expect("a thread");
            theirs
        };
        let mut strangers: Vec<UnixStream> = (0..MOST_INSIDE).map(|_| admit()).collect();
        let mut rank = admit();
        rank.write_all(&[7]).expect("heard");
        assert_eq!(strangers[0].read(&mut [0]).expect("an end"), 0, "the oldest is hung up on");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let deadline = Instant::now() + Duration::from_secs(60);
        let known = loop {
            match reception.known() {
                known if known.is_empty() => reception.wait(&listener, deadline).expect("a wait"),
                known => break known,
            }
        };
        assert_eq!(known, [7]);
    }
}
