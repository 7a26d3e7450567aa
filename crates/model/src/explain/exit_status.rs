//! Exit codes and signals of processes, in words. Pure.

use crate::batchai::BatchAiError;

/// How a process ended, as an error of a job says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitStatus {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl ExitStatus {
    /// Exit code and signal of the process that an error is about.
    pub fn of(error: &BatchAiError) -> ExitStatus {
        let number = |name: &str| error.detail(name).and_then(|text| text.parse().ok());
        ExitStatus { code: number("ExitCode"), signal: number("Signal") }
    }

    /// The signal that ended the process, or a child whose end its exit code passes on: a shell exits with 128 + n, and
    /// a Python program that passes on the return code of a child with -n, of which the system keeps 256 - n.
    pub fn deciding_signal(self) -> Option<i32> {
        const PASSED_ON: [i32; 6] = [4, 6, 7, 8, 9, 11];
        let of_code = |code: i32| match code {
            129..160 => Some(code - 128),
            -64..-1 => Some(-code),
            _ => PASSED_ON.into_iter().find(|signal| code == 256 - signal),
        };
        self.signal.or_else(|| self.code.and_then(of_code))
    }

    /// `ended with exit code 3`, `was ended by signal 9 (SIGKILL)`.
    pub fn in_words(self) -> Option<String> {
        let with_name = |signal: i32| match signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        };
        match (self.signal, self.code) {
            (Some(signal), _) => Some(format!("was ended by {}", with_name(signal))),
            (None, Some(code)) => Some(match self.deciding_signal() {
                Some(signal) => format!("ended with exit code {code}, as after {}", with_name(signal)),
                None => format!("ended with exit code {code}"),
            }),
            (None, None) => None,
        }
    }
}

/// Name of a signal of Linux on x86-64 and ARM.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_described_with_their_signals() {
        for (code, signal, expected) in [
            (Some(3), None, Some("ended with exit code 3")),
            (Some(1), None, Some("ended with exit code 1")),
            (None, Some(9), Some("was ended by signal 9 (SIGKILL)")),
            (None, Some(40), Some("was ended by signal 40")),
            (Some(139), None, Some("ended with exit code 139, as after signal 11 (SIGSEGV)")),
            (Some(247), None, Some("ended with exit code 247, as after signal 9 (SIGKILL)")),
            (Some(-11), None, Some("ended with exit code -11, as after signal 11 (SIGSEGV)")),
            (Some(-1), None, Some("ended with exit code -1")),
            (Some(255), None, Some("ended with exit code 255")),
            (None, None, None),
        ] {
            assert_eq!(ExitStatus { code, signal }.in_words().as_deref(), expected);
        }
    }
}
