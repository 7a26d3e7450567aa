//! Decides when a progress line is printed. A terminal shows one line that is overwritten. A log gets a few lines per
//! epoch, however long it takes, so that it stays readable and still shows activity. Time is an argument.

use std::io::{self, Write};
use std::time::Duration;

use super::keras;

/// Destination of progress lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressOutput {
    /// One line that is overwritten. It must not exceed the width of the terminal, since a wrapped line cannot be
    /// overwritten.
    Terminal { columns: usize },
    /// Separate lines.
    Log,
}

/// Progress of one unit of work, for example an epoch.
#[derive(Debug)]
pub struct Progress {
    output: ProgressOutput,
    all: usize,
    /// Time of the last line, since the start.
    last_written: Option<Duration>,
    /// Characters on the terminal's line.
    shown_chars: usize,
}

/// Update interval on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
/// Limits of the interval between two lines of a log.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(1);
const MAX_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Lines of a log per unit of work, within these limits.
const LOG_LINES: u32 = 20;

impl Progress {
    /// `all` is the number of steps.
    pub fn new(output: ProgressOutput, all: usize) -> Progress {
        Progress { output, all, last_written: None, shown_chars: 0 }
    }

    /// Prints a line if it is due. `done` is less than the number of steps.
    pub fn update(
        &mut self,
        out: &mut dyn Write,
        elapsed: Duration,
        done: usize,
        metrics: &[(&str, f64)],
    ) -> io::Result<()> {
        if !self.is_due(elapsed, done) {
            return Ok(());
        }
        self.last_written = Some(elapsed);
        let mut line = keras::progress_line(done, self.all, elapsed, metrics);
        if let ProgressOutput::Terminal { columns } = self.output {
            line.truncate(columns.saturating_sub(1));
        }
        self.write(out, &line, false)
    }

    /// Prints the final line.
    pub fn finish(mut self, out: &mut dyn Write, elapsed: Duration, metrics: &[(&str, f64)]) -> io::Result<()> {
        let line = keras::final_line(self.all, elapsed, metrics);
        self.write(out, &line, true)
    }

    fn is_due(&self, elapsed: Duration, done: usize) -> bool {
        let Some(last) = self.last_written else {
            return self.output != ProgressOutput::Log || elapsed >= MIN_LOG_INTERVAL;
        };
        let pause = match self.output {
            ProgressOutput::Terminal { .. } => TERMINAL_INTERVAL,
            ProgressOutput::Log => (elapsed.div_f64(done.max(1) as f64).mul_f64(self.all as f64) / LOG_LINES)
                .clamp(MIN_LOG_INTERVAL, MAX_LOG_INTERVAL),
        };
        elapsed.saturating_sub(last) >= pause
    }

    fn write(&mut self, out: &mut dyn Write, line: &str, ended: bool) -> io::Result<()> {
        match self.output {
            ProgressOutput::Log => writeln!(out, "{line}")?,
            ProgressOutput::Terminal { .. } => {
                let rest = " ".repeat(self.shown_chars.saturating_sub(line.len()));
                self.shown_chars = line.len();
                write!(out, "\r{line}{rest}{}", if ended { "\n" } else { "" })?;
            }
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output for an epoch of `all` steps that takes `seconds`.
    fn written(output: ProgressOutput, all: usize, seconds: f64) -> String {
        let mut out = Vec::new();
        let mut progress = Progress::new(output, all);
        let at = |done: usize| Duration::from_secs_f64(seconds * done as f64 / all as f64);
        for done in 1..all {
            progress.update(&mut out, at(done), done, &[("loss", 2.0)]).expect("a write to memory");
        }
        progress.finish(&mut out, at(all), &[("loss", 1.0)]).expect("a write to memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_log_has_a_bounded_number_of_lines() {
        for (all, seconds, expected) in
            [(1563, 0.5, 1), (1563, 5.0, 5), (1563, 42.0, 20), (1563, 600.0, 60), (1, 0.1, 1)]
        {
            let lines = written(ProgressOutput::Log, all, seconds).lines().count();
            assert!(lines.abs_diff(expected) <= 1, "{lines} lines of an epoch of {seconds} s");
        }
    }

    #[test]
    fn overwritten_lines_fit_the_terminal() {
        let text = written(ProgressOutput::Terminal { columns: 40 }, 10, 1.0);
        let lines: Vec<&str> = text.split('\r').skip(1).collect();
        let (last, before) = lines.split_last().expect("several");
        assert!(before.iter().all(|line| line.len() == 39), "{before:?}");
        assert!(last.ends_with("loss: 1.0000\n"), "the last is whole: {last:?}");
    }

    #[test]
    fn a_terminal_has_one_overwritten_line() {
        let text = written(ProgressOutput::Terminal { columns: 200 }, 10, 1.0);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.starts_with("\r 1/10 [==>") && text.ends_with('\n'), "{text:?}");
        let lengths: Vec<usize> = text.trim_end_matches('\n').split('\r').skip(1).map(str::len).collect();
        assert!(
            lengths.iter().all(|length| *length >= lengths[0] - 1),
            "what was there before is covered: {lengths:?}"
        );
    }
}
