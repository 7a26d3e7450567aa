//! Output and exit code of a command, with the assertions that tests make about them.

use std::process::Output;

use serde_json::Value;

/// Output and exit code of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts success.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Asserts success and JSON output.
    #[track_caller]
    pub fn json(self) -> Value {
        let ended = self.ok();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
    }

    /// Asserts this exit code, and all of these texts on standard error.
    #[track_caller]
    pub fn fails(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for text in says {
            assert!(self.stderr.contains(text), "stderr should say {text:?}: {}", self.stderr);
        }
        self
    }
}
