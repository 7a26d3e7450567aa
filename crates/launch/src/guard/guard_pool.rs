//! The guards that a fork server has forked, and which of them are idle. Never waits for a guard: one
//! that sends nothing is busy.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::spawn_request::RawRequest;
use crate::socket_pair::socket_pair;

/// Message from a guard to its fork server: its process tree has ended, and it can take another request.
pub const IDLE: u8 = b'R';
/// Maximum number of idle guards. A node with more processes forks the others anew for each job.
const MAX_IDLE: usize = 8;

#[derive(Default)]
pub struct GuardPool {
    guards: Vec<Guard>,
}

struct Guard {
    socket: OwnedFd,
    is_idle: bool,
}

/// The side of a fork.
pub enum ForkSide {
    Parent,
    /// With the guard's socket to the fork server.
    Guard(OwnedFd),
}

impl GuardPool {
    /// Passes the request to an idle guard; false when there is none.
    pub fn assign(&mut self, request: &RawRequest) -> bool {
        self.guards.retain_mut(Guard::update);
        while let Some(at) = self.guards.iter().position(|guard| guard.is_idle) {
            let guard = &mut self.guards[at];
            guard.is_idle = false;
            if request.forward(guard.socket.as_fd()).is_ok() {
                self.end_excess_guards();
                return true;
            }
            // The guard was killed; descriptors that it received are closed with it.
            self.guards.swap_remove(at);
        }
        false
    }

    pub fn fork(&mut self) -> io::Result<ForkSide> {
        let (server_end, guard_end) = socket_pair()?;
        // SAFETY: this process has one thread, so the child may use everything.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(ForkSide::Guard(guard_end)),
            _ => {
                self.guards.push(Guard { socket: server_end, is_idle: false });
                Ok(ForkSide::Parent)
            }
        }
    }

    fn end_excess_guards(&mut self) {
        let mut n_idle = 0;
        self.guards.retain(|guard| {
            n_idle += usize::from(guard.is_idle);
            !guard.is_idle || n_idle <= MAX_IDLE
        });
    }
}

impl Guard {
    /// Reads whether the guard is idle by now; false when it has ended.
    fn update(&mut self) -> bool {
        let mut message = [0];
        match recv(&self.socket, &mut message, RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok(_) => {
                self.is_idle = message == [IDLE];
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}
