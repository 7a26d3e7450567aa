//! Accepted connections whose authentication is still running. Each has a thread of its own, so a peer that sends nothing blocks no other.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::Shutdown;

use crate::close_on_fork::CloseOnFork;
use crate::transport::connect::credentials::remaining_time;

/// `T`: the result of a successful handshake.
pub struct HandshakePool<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    /// An eventfd, written when a handshake has ended.
    ended: CloseOnFork<OwnedFd>,
}

struct State<T> {
    next: u64,
    /// A second handle of each connection, to shut it down.
    pending: HashMap<u64, CloseOnFork<OwnedFd>>,
    authenticated: Vec<T>,
}

/// Beyond this the oldest pending connection is closed, so that strangers keep no rank out.
const MAX_PENDING: usize = 512;
/// The longest poll: another thread may have accepted the connection that woke this one.
const MAX_POLL: Duration = Duration::from_millis(100);

impl<T: Send + 'static> HandshakePool<T> {
    pub fn open() -> io::Result<HandshakePool<T>> {
        let ended = CloseOnFork::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let state = State { next: 0, pending: HashMap::new(), authenticated: Vec::new() };
        Ok(HandshakePool { inner: Arc::new(Inner { state: Mutex::new(state), ended }) })
    }

    /// Runs `handshake`, which has a time limit of its own, on a new thread. It returns `None` for a peer that fails to authenticate, after closing the
    /// connection.
    pub fn admit<S: AsFd + Send + 'static>(
        &self,
        stream: S,
        handshake: impl FnOnce(S) -> Option<T> + Send + 'static,
    ) -> io::Result<()> {
        let ticket = {
            let mut state = self.inner.lock();
            if state.pending.len() >= MAX_PENDING
                && let Some(oldest) = state.pending.keys().min().copied()
                && let Some(stranger) = state.pending.remove(&oldest)
            {
                // Its thread reads end of file, and ends.
                let _ = rustix::net::shutdown(&stranger, Shutdown::Both);
            }
            state.next += 1;
            let ticket = state.next;
            state.pending.insert(ticket, CloseOnFork::new(stream.as_fd().try_clone_to_owned()?));
            ticket
        };
        let inner = self.inner.clone();
        let work = move || {
            let authenticated = handshake(stream);
            let mut state = inner.lock();
            // A connection that was closed meanwhile is of no use, even if it authenticated.
            if state.pending.remove(&ticket).is_some() {
                state.authenticated.extend(authenticated);
            }
            let _ = rustix::io::write(&inner.ended, &1u64.to_ne_bytes());
        };
        std::thread::Builder::new().name("corro-handshake".into()).spawn(work).map(drop)
    }

    /// Takes the results of handshakes that have succeeded since the last call.
    pub fn take_authenticated(&self) -> Vec<T> {
        std::mem::take(&mut self.inner.lock().authenticated)
    }

    /// Waits until `listener` may have a connection or a handshake may have ended.
    pub fn wait(&self, listener: impl AsFd, deadline: Instant) -> io::Result<()> {
        let nap = remaining_time(deadline).min(MAX_POLL);
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&self.inner.ended, PollFlags::IN)];
        match poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&self.inner.ended, &mut [0; 8]);
        Ok(())
    }
}

impl<T> Inner<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for HandshakePool<T> {
    fn drop(&mut self) {
        for stranger in self.inner.lock().pending.values() {
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
    fn silent_peers_keep_no_rank_out() {
        let handshake_pool = HandshakePool::<u8>::open().expect("a handshake_pool");
        let admit = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let handshake = |mut stream: UnixStream| {
                let mut byte = [0];
                stream.read_exact(&mut byte).ok().map(|()| byte[0])
            };
            handshake_pool.admit(ours, handshake).expect("a thread");
            theirs
        };
        let mut strangers: Vec<UnixStream> = (0..MAX_PENDING).map(|_| admit()).collect();
        let mut rank = admit();
        rank.write_all(&[7]).expect("sent");
        assert_eq!(strangers[0].read(&mut [0]).expect("an end"), 0, "the oldest is closed");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let deadline = Instant::now() + Duration::from_secs(60);
        let known = loop {
            match handshake_pool.take_authenticated() {
                known if known.is_empty() => handshake_pool.wait(&listener, deadline).expect("a wait"),
                known => break known,
            }
        };
        assert_eq!(known, [7]);
    }
}
