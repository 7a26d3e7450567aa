//! Cause of a job's failure in plain words: rank, node, exit status and last output. One sentence for each error code
//! of the server and its nodes. Remedies are in `advice`.

use super::Cause;
use super::diagnosis::GPU_ERROR;
use super::exit_status::ExitStatus;
use super::rules::Diagnosis;
use crate::batchai::BatchAiError;
use crate::docs_keys;

/// Describes one error, with the cause that a rule found.
pub fn cause(error: &BatchAiError, known: Option<&Diagnosis>) -> Cause {
    // Details that the sentence already contains, or that follow it, are not repeated.
    let in_sentence = ["Rank", "Node", "ExitCode", "Signal", "StdErr", "Field", "Dependency", "Cause"];
    let others = error.details.iter().filter(|detail| !in_sentence.contains(&detail.name.as_str()));
    let details = others.flat_map(|detail| match detail.name.as_str() {
        "Info" | GPU_ERROR => lines(&detail.value),
        name => lines(&format!("{name}: {}", detail.value)),
    });
    let last_output = error.detail("StdErr").map_or_else(Vec::new, lines);
    let docs_key = known.map(|known| known.key).or_else(|| docs_keys::find(docs_keys::JOB_ERRORS, &error.code));
    let docs_key = docs_key.map(str::to_owned);
    let sentence =
        known.map_or_else(|| sentence(error), |known| format!("{} {}", sentence(error), known.finding.cause));
    Cause { sentence, details: details.collect(), last_output, docs_key }
}

/// The error in one sentence.
pub fn sentence(error: &BatchAiError) -> String {
    let node = error.detail("Node");
    let on_node = node.map_or_else(String::new, |node| format!(" on node {node}"));
    match error.code.as_str() {
        "JobFailed" => {
            let who = error.detail("Rank").map_or_else(|| "A process".to_owned(), |rank| format!("Rank {rank}"));
            format!("{who}{on_node} {}.", ended(error))
        }
        "JobPreparationFailed" => {
            format!("The job preparation{on_node} {}, so no rank was started.", ended(error))
        }
        code => {
            let message = error.message.trim_end_matches('.');
            let place = node.filter(|node| !message.contains(*node)).map_or_else(String::new, |_| on_node.clone());
            format!("{message}{place} ({code}).")
        }
    }
}

/// How a process ended: its exit code, or a signal.
fn ended(error: &BatchAiError) -> String {
    ExitStatus::of(error).in_words().unwrap_or_else(|| format!("failed: {}", error.message.trim_end_matches('.')))
}

fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(code: &str, message: &str, details: &[(&str, &str)]) -> String {
        let error =
            details.iter().fold(BatchAiError::new(code, message), |error, (name, value)| error.with(name, *value));
        let mut lines = Vec::new();
        cause(&error, None).write(&mut lines);
        lines.join("\n")
    }

    /// Covers every error code that ends a job, with the messages of the server and its nodes.
    #[test]
    fn every_cause_has_a_plain_sentence() {
        for (code, message, details, expected) in [
            (
                "JobFailed",
                "Job failed with non-zero exit code",
                vec![("Rank", "1"), ("Node", "n2"), ("ExitCode", "3"), ("StdErr", "Traceback\nboom\n")],
                "Rank 1 on node n2 ended with exit code 3.\nIts last lines on stderr:\n    Traceback\n    boom",
            ),
            (
                "JobFailed",
                "Job failed with non-zero exit code",
                vec![("Rank", "0"), ("Node", "n1"), ("Signal", "9")],
                "Rank 0 on node n1 was ended by signal 9 (SIGKILL).",
            ),
            (
                "JobFailed",
                "Job failed with non-zero exit code",
                vec![("Rank", "0"), ("Node", "n1"), ("ExitCode", "139")],
                "Rank 0 on node n1 ended with exit code 139, as after signal 11 (SIGSEGV).",
            ),
            (
                "JobPreparationFailed",
                "Job preparation task failed with non-zero exit code",
                vec![("Node", "n1"), ("ExitCode", "127"), ("StdErr", "apt: not found")],
                "The job preparation on node n1 ended with exit code 127, so no rank was started.\n\
                 Its last lines on stderr:\n    apt: not found",
            ),
            (
                "AZFMountError",
                "Unable to mount Azure File",
                vec![("Info", "Could not mount //a/s at /m: there is no share 's'"), ("Node", "n1")],
                "Unable to mount Azure File on node n1 (AZFMountError).\n    Could not mount //a/s at /m: there is no share 's'",
            ),
            (
                "BFSMountError",
                "unable to mount blob fuse file system",
                vec![("Info", "Azure Blob Container 'c' doesn't exist"), ("Node", "n1")],
                "unable to mount blob fuse file system on node n1 (BFSMountError).\n    Azure Blob Container 'c' doesn't exist",
            ),
            (
                "FailedStartingContainer",
                "unable to start docker container",
                vec![("imageName", "ubuntu"), ("Info", "no engine"), ("Node", "n1")],
                "unable to start docker container on node n1 (FailedStartingContainer).\n    imageName: ubuntu\n    no engine",
            ),
            (
                "JobTerminated",
                "The specified job has been terminated by the user",
                vec![],
                "The specified job has been terminated by the user (JobTerminated).",
            ),
            (
                "JobWallClockTimeExceeded",
                "The job ran longer than its constraints.maxWallClockTime of PT1H and was stopped",
                vec![],
                "The job ran longer than its constraints.maxWallClockTime of PT1H and was stopped (JobWallClockTimeExceeded).",
            ),
            (
                "NodeLost",
                "The job lost a node in each of 3 attempts and is not tried again: attempt 1 n1 at t, attempt 2 n2 at t, attempt 3 n3 at t",
                vec![("Node", "n3")],
                "The job lost a node in each of 3 attempts and is not tried again: attempt 1 n1 at t, attempt 2 n2 at t, attempt 3 n3 at t (NodeLost).",
            ),
            (
                "LogWriteFailed",
                "Unable to write a log file of the job",
                vec![("Node", "n1"), ("Path", "/logs/stdout.txt"), ("Info", "No space left on device")],
                "Unable to write a log file of the job on node n1 (LogWriteFailed).\n    Path: /logs/stdout.txt\n    No space left on device",
            ),
            (
                "DependencyFailed",
                "The job was not started because job a failed with exit code 3: fix the cause, then submit both again",
                vec![("Dependency", "a"), ("Cause", "job a failed with exit code 3")],
                "The job was not started because job a failed with exit code 3: fix the cause, then submit both again (DependencyFailed).",
            ),
            ("Unheard", "Something else.", vec![], "Something else (Unheard)."),
        ] {
            assert_eq!(describe(code, message, &details), expected, "{code}");
        }
    }
}
