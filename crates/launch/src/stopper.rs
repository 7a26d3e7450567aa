//! The launcher's end of the life socket of a guard: stops the guarded process, and receives how it ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use crate::guard;

/// Stops a process from anywhere. Holding one does not keep the process alive.
#[derive(Clone, Debug)]
pub struct Stopper {
    pub(crate) life_socket: Arc<LifeSocket>,
}

/// The launcher's end of the life socket. It becomes readable when the guard has sent the exit status or has ended.
#[derive(Debug)]
pub(crate) struct LifeSocket {
    socket: AsyncFd<OwnedFd>,
}

impl Stopper {
    /// `socket` must be nonblocking.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Stopper> {
        // SAFETY: an `OwnedFd` is open, always names the same descriptor, and is closed only when the `AsyncFd` drops it.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
        Ok(Stopper { life_socket: Arc::new(LifeSocket { socket }) })
    }

    /// Sends SIGTERM to the whole process tree, and SIGKILL after `grace`. Returns when the process has ended or
    /// SIGKILL has been sent; a caller that is cancelled before sends no SIGKILL.
    pub async fn terminate(&self, grace: Duration) {
        self.life_socket.send(guard::TERMINATE);
        if timeout(grace, self.ended()).await.is_err() {
            self.kill();
        }
    }

    /// Sends a signal to the whole process tree, as a terminal would. Does not wait for its effect.
    pub fn signal(&self, signal: Signal) {
        if let Ok(number) = u8::try_from(signal.as_raw()) {
            self.life_socket.send(number);
        }
    }

    /// Kills the whole process tree.
    pub fn kill(&self) {
        self.life_socket.send(guard::KILL);
    }

    /// Resolves when the guard has ended.
    pub async fn ended(&self) {
        let peek = |fd: &OwnedFd| Ok(recv(fd, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?);
        // An error means that the guard has ended, or that the runtime is shutting down.
        let _: io::Result<_> = self.life_socket.socket.async_io(Interest::READABLE, peek).await;
    }
}

impl LifeSocket {
    /// Receives the guard's next message; 0 bytes when the guard has ended.
    pub(crate) async fn receive(&self, message: &mut [u8]) -> io::Result<usize> {
        let received =
            self.socket.async_io(Interest::READABLE, |fd| Ok(recv(fd, &mut *message, RecvFlags::DONTWAIT)?.0));
        match received.await {
            // The guard ended with an unread command.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            received => received,
        }
    }

    fn send(&self, command: u8) {
        // The socket buffer holds thousands of commands, so an error means that the guard has ended.
        let _ = send(self.socket.get_ref(), &[command], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Closes the write side, which the guard takes for the launcher's death. Its last message can still be received.
    pub(crate) fn close(&self) {
        let _ = shutdown(self.socket.get_ref(), Shutdown::Write);
    }
}
