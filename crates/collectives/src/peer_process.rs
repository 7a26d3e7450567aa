//! The process at the other end of a Unix socket, as the kernel knows it: its user, and a pidfd that becomes readable when it ends. A pidfd tells
//! of a process's end even when something else, such as a child made without `fork`'s handlers, still holds its sockets open.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::close_on_fork::CloseOnFork;

/// PeerCredentials of the process that connected, or that listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// `None` when the process is in a PID namespace that this one does not see.
    pub pid: Option<i32>,
    pub uid: u32,
}

/// `None` when the descriptor is no Unix socket with a peer.
pub fn credentials(socket: impl AsFd) -> Option<PeerCredentials> {
    raw_credentials(socket.as_fd().as_raw_fd())
}

/// As [`credentials`], for a number that may not be an open descriptor.
pub fn raw_credentials(socket: i32) -> Option<PeerCredentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut n_bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a raw call because the number may not be open, which a borrowed descriptor promises, and because the kernel reports pid 0
    // for a process of another namespace. It checks the number, and writes at most `n_bytes` to `peer`, which is as long.
    let status = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut n_bytes)
    };
    let is_peer = status == 0 && peer.uid != u32::MAX;
    is_peer.then_some(PeerCredentials { pid: (peer.pid > 0).then_some(peer.pid), uid: peer.uid })
}

/// Readable when the process has ended.
///
/// # Errors
/// `ESRCH` for a process that does not exist; others where the kernel or a sandbox does not offer it.
pub fn open_pidfd(pid: i32) -> io::Result<CloseOnFork<OwnedFd>> {
    // SAFETY: takes two numbers. The kernel sets the close-on-exec flag.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) else { return Err(io::Error::last_os_error()) };
    // SAFETY: a new descriptor that nothing else owns.
    Ok(CloseOnFork::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use corro_test_support::skip;

    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn the_peer_of_a_socket_is_known() {
        let (one, _other) = UnixStream::pair().expect("sockets");
        let own = PeerCredentials { pid: Some(std::process::id() as i32), uid: rustix::process::getuid().as_raw() };
        assert_eq!(credentials(&one), Some(own));
        assert_eq!(raw_credentials(-1), None);
        assert_eq!(credentials(std::net::TcpListener::bind("127.0.0.1:0").expect("a port")), None);
    }

    #[test]
    fn the_end_of_a_process_is_noticed_before_it_is_waited_for() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat starts");
        let Ok(pidfd) = open_pidfd(child.id() as i32) else {
            skip::unsupported_machine("this kernel or sandbox has no pidfd_open");
            child.kill().and_then(|()| child.wait()).expect("it ends");
            return;
        };
        let is_ready = |wait: bool| {
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let limit = if wait { None } else { Some(&now) };
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], limit).expect("poll") == 1
        };
        assert!(!is_ready(false));
        child.kill().expect("a child can be killed");
        assert!(is_ready(true));
        child.wait().expect("a child can be waited for");
    }
}
