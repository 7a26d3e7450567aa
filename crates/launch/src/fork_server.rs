//! The launcher's handle of its fork server, a small process that forks guards (see `guard`). Started when needed, restarted after it was killed, ended by
//! closing its socket. Never waits for a guard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::guard::{proc_tag, spawn_request};
use crate::kill_tagged::TAG_VARIABLE;
use crate::socket_pair::socket_pair;
use crate::supervisor_deadline::DeadlineWriter;

#[derive(Debug)]
pub struct ForkServer {
    /// The fork server ends when this socket closes.
    socket: UnixStream,
    id: u32,
    /// Reaped by the runtime whenever it ends.
    _process: tokio::process::Child,
}

impl ForkServer {
    pub fn start(program: &Path, arguments: &[String], deadline: &DeadlineWriter) -> io::Result<ForkServer> {
        let (our_end, server_end) = socket_pair()?;
        let mut command = Command::new(program);
        command.arg0("corro").args(arguments);
        command.env_clear().env(TAG_VARIABLE, proc_tag::BLANK_TAG);
        command
            .stdin(Stdio::from(server_end))
            .stdout(Stdio::from(deadline.file_for_fork_server()?))
            .stderr(Stdio::null());
        // In a process group of its own, so that Ctrl-C in the launcher's terminal does not reach it, and in `/`, so that it
        // does not keep the launcher's working directory busy.
        command.process_group(0).current_dir("/");
        let process = tokio::process::Command::from(command).spawn()?;
        let our_end = std::os::unix::net::UnixStream::from(our_end);
        our_end.set_nonblocking(true)?;
        let id = process.id().unwrap_or_default();
        Ok(ForkServer { socket: UnixStream::from_std(our_end)?, id, _process: process })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends a request with its descriptors. Must not be cancelled: after half a request the next one would be garbled.
    pub async fn send(&self, mut bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut descriptors = descriptors;
        while !bytes.is_empty() {
            let socket = self.socket.as_fd();
            let send = || spawn_request::send(socket, bytes, descriptors);
            let sent = self.socket.async_io(Interest::WRITABLE, send).await?;
            (bytes, descriptors) = (&bytes[sent..], &[]);
        }
        Ok(())
    }
}
