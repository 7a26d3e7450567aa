//! The launcher's side of its warden: started once, restarted when somebody killed it, ended by closing its socket. Only
//! `process` enters here. Never waits for a guard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::guard::{mark, order};
use crate::lease::Lease;
use crate::sweep::TAG_VARIABLE;

#[derive(Debug)]
pub struct Warden {
    /// Its end is the warden's.
    socket: UnixStream,
    id: u32,
    /// Waited for by the runtime whenever it ends.
    _process: tokio::process::Child,
}

impl Warden {
    pub fn start(program: &Path, arguments: &[String], lease: &Lease) -> io::Result<Warden> {
        let (here, there) = pair()?;
        let mut command = Command::new(program);
        command.arg0("corro").args(arguments);
        command.env_clear().env(TAG_VARIABLE, mark::BLANK);
        command.stdin(Stdio::from(there)).stdout(Stdio::from(lease.for_warden()?)).stderr(Stdio::null());
        // From its first instant, Ctrl-C on our terminal is not the warden's business; and it must not hold on to
        // whatever directory we were started in.
        command.process_group(0).current_dir("/");
        let process = tokio::process::Command::from(command).spawn()?;
        let here = std::os::unix::net::UnixStream::from(here);
        here.set_nonblocking(true)?;
        let id = process.id().unwrap_or_default();
        Ok(Warden { socket: UnixStream::from_std(here)?, id, _process: process })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Hands over an order with its descriptors. Must be run to its end: half an order would garble the next.
    pub async fn send(&self, mut bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut descriptors = descriptors;
        while !bytes.is_empty() {
            let socket = self.socket.as_fd();
            let sent = self.socket.async_io(Interest::WRITABLE, || order::send(socket, bytes, descriptors)).await?;
            (bytes, descriptors) = (&bytes[sent..], &[]);
        }
        Ok(())
    }
}

/// Two ends of a private line; neither outlives an exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}
