//! Failures that `constraints.maxRetryCount` applies to: those of the job's own programs. Errors of the steps around them
//! (mounts, directories, containers, isolation) would repeat, and lost nodes have their own limit. Pure.

use crate::batchai::BatchAiError;

/// Error codes of failed programs: a rank or the command, the job preparation, the installation of Python packages.
const RETRIED_CODES: [&str; 3] = ["JobFailed", "JobPreparationFailed", "PythonEnvironmentFailed"];

/// Length of the output that the record of a failed attempt keeps.
const MAX_OUTPUT_CHARS: usize = 200;

/// Whether another attempt may succeed after this error.
pub fn is_retriable(error: &BatchAiError) -> bool {
    RETRIED_CODES.contains(&error.code.as_str())
}

/// The error as the record of an earlier attempt keeps it: with the last line of the output only, because a job may have
/// many attempts.
pub fn shortened(mut error: BatchAiError) -> BatchAiError {
    for detail in error.details.iter_mut().filter(|detail| detail.name == "StdErr") {
        let last = detail.value.trim_end().lines().last().unwrap_or_default();
        detail.value = last.chars().take(MAX_OUTPUT_CHARS).collect();
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_programs_are_retried() {
        let retried = |code: &str| is_retriable(&BatchAiError::new(code, "m"));
        assert!(retried("JobFailed") && retried("JobPreparationFailed"));
        for code in ["JobTerminated", "JobWallClockTimeExceeded", "NodeLost", "FailedStartingContainer", "NotSupported"]
        {
            assert!(!retried(code), "{code}");
        }
    }

    #[test]
    fn a_record_keeps_the_last_line_of_the_output() {
        let error = BatchAiError::new("JobFailed", "m").with("Rank", "1").with("StdErr", "Traceback\n  x\nboom\n");
        let values: Vec<_> = shortened(error).details.into_iter().map(|detail| detail.value).collect();
        assert_eq!(values, ["1", "boom"]);
        let long = BatchAiError::new("JobFailed", "m").with("StdErr", "é".repeat(5_000));
        assert_eq!(shortened(long).details[0].value.chars().count(), MAX_OUTPUT_CHARS);
    }
}
