//! This side of a terminal that is open on a node: keys go there as they are typed. Entered by `ssh`.

use std::io::{self, IsTerminal, Read};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// As much as is read at a time.
const CHUNK: usize = 8 * 1024;

/// Is there a person at both ends of this command?
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub fn size() -> (u32, u32) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// The terminal passes on every key, Ctrl-C too, until this is dropped.
pub struct Raw(Termios);

impl Raw {
    pub fn enter() -> Option<Raw> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// What is typed or piped in; closed at its end. Reading blocks, so it has a thread, which ends with the program.
pub fn keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        while let Ok(read @ 1..) = io::stdin().lock().read(&mut chunk) {
            if sender.blocking_send(chunk[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
