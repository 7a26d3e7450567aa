//! The guards that a warden has forked, and which of them rest. Only the warden enters here. Never waits for a guard: one
//! that says nothing is at work.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::order::Packet;
use crate::warden::pair;

/// On the line between a guard and its warden: nothing is left of my process, I can take another.
pub const RESTING: u8 = b'R';
/// How many may rest. A node with more processes forks the others anew for each job.
const MOST: usize = 8;

#[derive(Default)]
pub struct Crew {
    guards: Vec<Guard>,
}

struct Guard {
    line: OwnedFd,
    rests: bool,
}

/// Who one is after a fork.
pub enum Forked {
    Warden,
    /// With the line to the warden.
    Guard(OwnedFd),
}

impl Crew {
    /// Gives the order to a guard that rests; false when there is none.
    pub fn has_done(&mut self, packet: &Packet) -> bool {
        self.guards.retain_mut(Guard::is_there);
        while let Some(at) = self.guards.iter().position(|guard| guard.rests) {
            let guard = &mut self.guards[at];
            guard.rests = false;
            if packet.pass_on(guard.line.as_fd()).is_ok() {
                self.let_some_go();
                return true;
            }
            // Somebody killed it; whatever it was given is closed with it.
            self.guards.swap_remove(at);
        }
        false
    }

    pub fn fork(&mut self) -> io::Result<Forked> {
        let (warden, guard) = pair()?;
        // SAFETY: there is one thread, so the child may do whatever this process may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Forked::Guard(guard)),
            _ => {
                self.guards.push(Guard { line: warden, rests: false });
                Ok(Forked::Warden)
            }
        }
    }

    fn let_some_go(&mut self) {
        let mut n_resting = 0;
        self.guards.retain(|guard| {
            n_resting += usize::from(guard.rests);
            !guard.rests || n_resting <= MOST
        });
    }
}

impl Guard {
    /// Hears whether it rests by now; false when it has ended.
    fn is_there(&mut self) -> bool {
        let mut word = [0];
        match recv(&self.line, &mut word, RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok(_) => {
                self.rests = word == [RESTING];
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}
