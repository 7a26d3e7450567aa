//! Progress bar of transfers and spinner of long-running operations, on standard error. Silent unless standard error is a terminal.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Width of bar and word, as in `az`.
const LINE_WIDTH: usize = 70;
const REDRAW_EVERY: Duration = Duration::from_millis(100);
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// Progress bar of a transfer. Updates from several threads are cheap.
pub struct TransferBar {
    shown: bool,
    last_drawn: Mutex<Option<Instant>>,
}

impl TransferBar {
    /// `is_enabled` is false with `--no-progress`.
    pub fn new(is_enabled: bool) -> TransferBar {
        TransferBar { shown: is_enabled && on_terminal(), last_drawn: Mutex::new(None) }
    }

    pub fn update(&self, done: u64, total: u64) {
        if !self.shown {
            return;
        }
        let Ok(mut last) = self.last_drawn.lock() else { return };
        if last.is_none_or(|at| at.elapsed() >= REDRAW_EVERY) {
            *last = Some(Instant::now());
            draw(&format!("\r{}", bar("Alive", done, total, columns())));
        }
    }

    pub fn finish(&self) {
        if self.shown {
            draw(&format!("\r{}\n", bar("Finished", 1, 1, columns())));
        }
    }

    /// Ends the line of an unfinished bar, so that an error message starts on its own line.
    pub fn abandon(&self) {
        if self.shown && self.last_drawn.lock().is_ok_and(|last| last.is_some()) {
            draw("\n");
        }
    }
}

/// Spinner for a pending operation. Dropping it clears the line.
pub struct Spinner {
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Spinner {
    pub fn start(message: &str) -> Spinner {
        if !on_terminal() {
            return Spinner { task: None };
        }
        let message = message.to_owned();
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(REDRAW_EVERY);
            for frame in SPINNER.iter().cycle() {
                tick.tick().await;
                draw(&format!("\r {frame} {message} .."));
            }
        });
        Spinner { task: Some(task) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
            draw("\r\x1b[K");
        }
    }
}

/// Clears the line of a spinner before a message.
pub fn clear_line() {
    if on_terminal() {
        draw("\r\x1b[K");
    }
}

fn bar(word: &str, done: u64, total: u64, columns: usize) -> String {
    let share = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let percent = format!("{:.4}%", share * 100.0);
    // A wrapped line would scroll with every update.
    let available = columns.saturating_sub("  100.0000%".len() + 2);
    let length = LINE_WIDTH.min(available).saturating_sub(word.len() + 1);
    if length < 10 {
        return format!("{word} {percent}");
    }
    let filled = "#".repeat((length as f64 * share) as usize);
    format!("{word}[{filled:<length$}]  {percent}")
}

/// Width of the terminal.
fn columns() -> usize {
    let width = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    if width == 0 { 100 } else { width.into() }
}

fn on_terminal() -> bool {
    rustix::termios::isatty(io::stderr())
}

/// Draws the text. Errors are ignored: they must not fail the transfer.
fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_as_az_draws_them() {
        assert_eq!(
            bar("Finished", 7, 7, 100),
            "Finished[#############################################################]  100.0000%"
        );
        assert_eq!(bar("Alive", 0, 9, 100), format!("Alive[{}]  0.0000%", " ".repeat(64)));
        assert_eq!(bar("Alive", 1, 2, 100), format!("Alive[{}{}]  50.0000%", "#".repeat(32), " ".repeat(32)));
        assert_eq!(bar("Alive", 0, 0, 100), format!("Alive[{}]  100.0000%", "#".repeat(64)));
    }
    #[test]
    fn bars_fit_the_terminal() {
        for columns in [20, 30, 60, 80, 81, 120] {
            for word in ["Alive", "Finished"] {
                assert!(bar(word, 7, 7, columns).len() < columns, "{columns}");
            }
        }
    }
}
