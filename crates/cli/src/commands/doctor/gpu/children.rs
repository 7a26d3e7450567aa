//! Runs a GPU test as a child process, with a time limit. A child that cannot be killed, because its driver hangs in the kernel, is left behind.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};

use super::self_test::{Part, Report, SUBCOMMAND, WITH_GPU};

/// The first use of a machine's GPUs takes some seconds where no process keeps the driver's state.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for the end of a child after its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;
const OWN_EXECUTABLE: &str = "/proc/self/exe";
/// Shortens the limit, for tests of drivers that hang.
const TIMEOUT_VARIABLE: &str = "CORRO_TEST_GPU_TIMEOUT_MS";

/// Reports of a child, and why there are no more.
#[derive(Debug, Default)]
pub struct Outcome {
    pub reports: Vec<Report>,
    pub failure: Option<String>,
}

pub async fn run_test(part: Part, with_gpu: bool, directories: &[PathBuf]) -> Outcome {
    let mut command = Command::new(OWN_EXECUTABLE);
    command.arg(SUBCOMMAND).arg(part.name()).args(with_gpu.then_some(WITH_GPU)).args(directories);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command.current_dir(Path::new("/"));
    match command.spawn() {
        Ok(child) => watch(child, test_timeout()).await,
        Err(error) => Outcome { failure: Some(format!("the test cannot be started ({error})")), ..Outcome::default() },
    }
}

fn test_timeout() -> Duration {
    let given = std::env::var(TIMEOUT_VARIABLE).ok().and_then(|text| text.parse().ok());
    given.map_or(TEST_TIMEOUT, Duration::from_millis)
}

async fn watch(mut child: Child, limit: Duration) -> Outcome {
    let mut reports = Vec::new();
    let deadline = Instant::now() + limit;
    if let Some(output) = child.stdout.take()
        && timeout_at(deadline, read_reports(output, &mut reports)).await.is_err()
    {
        let failure = format!("did not answer within {} s", limit.as_secs_f32());
        return Outcome { reports, failure: Some(failure) };
    }
    let failure = match timeout(EXIT_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => failure_of(status),
        Ok(Err(error)) => Some(format!("its test cannot be waited for ({error})")),
        Err(_) => Some("its test did not end".to_owned()),
    };
    Outcome { reports, failure }
}

/// Reads reports until the end of the output; other lines, as libraries write them, are ignored.
async fn read_reports(output: impl AsyncRead + Unpin, reports: &mut Vec<Report>) {
    let mut lines = BufReader::new(output.take(MAX_OUTPUT_BYTES)).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        reports.extend(serde_json::from_slice::<Report>(&line));
    }
}

fn failure_of(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;

    match (status.signal(), status.code()) {
        (Some(signal), _) => Some(format!("crashed when it was tried (signal {signal})")),
        (None, Some(0)) => None,
        (None, code) => Some(format!("failed when it was tried (exit code {})", code.unwrap_or(-1))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::self_test::Test;
    use super::*;

    async fn outcome(script: &str, limit: Duration) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        watch(command.spawn().expect("a shell"), limit).await
    }

    #[tokio::test]
    async fn reports_before_a_failure_are_kept() {
        let report = r#"{"test":"driver","isOk":true,"text":"580.65"}"#;
        let expected = [Report { test: Test::Driver, is_ok: true, text: "580.65".to_owned() }];
        let long = Duration::from_secs(60);
        for (script, limit, failure) in [
            (format!("echo 'NCCL version'; echo '{report}'"), long, None),
            (format!("echo '{report}'; kill -SEGV $$"), long, Some("crashed when it was tried (signal 11)")),
            (format!("echo '{report}'; exit 3"), long, Some("failed when it was tried (exit code 3)")),
            (format!("echo '{report}'; exec sleep 100"), Duration::from_secs(1), Some("did not answer within 1 s")),
        ] {
            let outcome = outcome(&script, limit).await;
            assert_eq!((outcome.reports.as_slice(), outcome.failure.as_deref()), (&expected[..], failure), "{script}");
        }
    }
}
