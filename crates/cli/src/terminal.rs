//! The local terminal: its size, raw mode, and its input as a channel.

use std::io::{self, IsTerminal, Read};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

const READ_CHUNK_BYTES: usize = 8 * 1024;

/// Whether standard input and standard output are terminals.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Columns and rows; 80 and 24 if they cannot be determined.
pub fn size() -> (u32, u32) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Width of the terminal that standard output is; `None` if it is none, where lines may have any length.
pub fn output_width() -> Option<usize> {
    io::stdout().is_terminal().then(|| size().0 as usize)
}

/// Raw mode of the terminal: every key, also Ctrl-C, is read as input. Dropping it restores the previous mode.
pub struct RawMode(Termios);

impl RawMode {
    pub fn enter() -> Option<RawMode> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(RawMode(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Chunks of standard input; closed at end of file. Reading blocks, so a thread does it, which ends with the process.
pub fn stdin_channel() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        while let Ok(read @ 1..) = io::stdin().lock().read(&mut chunk) {
            if sender.blocking_send(chunk[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
