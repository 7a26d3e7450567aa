//! Options of the sockets between ranks, and detection of a peer whose host does not acknowledge any more.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::close_on_fork::CloseOnFork;
use crate::transport::connect::credentials::remaining_time;

/// A connection to another rank that forked children do not inherit.
pub type Socket = CloseOnFork<TcpStream>;

/// Retransmissions after which a peer counts as unreachable. They are sent after 0.2, 0.4, 0.8, 1.6 and 3.2 seconds.
const MAX_RETRANSMITS: u8 = 5;

/// Sets the options of a new connection: no Nagle delay, and keepalive that notices an unreachable host within seconds on an idle
/// connection. The peer's kernel answers keepalive probes even if its process is stopped.
pub fn set_options(stream: &TcpStream, handshake_deadline: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(remaining_time(handshake_deadline)))?;
    stream.set_write_timeout(Some(remaining_time(handshake_deadline)))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 6)?;
    Ok(())
}

/// Removes the time limits of the handshake.
pub fn clear_timeouts(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

/// Whether the peer's kernel has not acknowledged sent bytes for about 6 seconds (`TCP_INFO`). Keepalive sends no probes while bytes are
/// in flight, and `TCP_USER_TIMEOUT` would also close connections to a process that is only stopped and whose receive buffer is full.
pub fn is_unacknowledged(stream: &TcpStream) -> bool {
    // SAFETY: all-zero bytes are a valid `tcp_info`, which consists of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut n_bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `n_bytes` to `info`, which is that long. A raw call, because rustix does not have this option.
    let status = unsafe {
        let info = (&raw mut info).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut n_bytes)
    };
    status == 0 && info.tcpi_retransmits >= MAX_RETRANSMITS
}
