//! Starts a server in the background: runs the program again in a session of its own and waits until it says that it is ready. The new process writes
//! its summary and a zero byte to the pipe that is its standard output, then replaces both of its output streams by its log. If it ends before that,
//! its standard error says why, and nothing of it is left.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use corro_base::procfs::SELF_EXE;
use rustix::process::{Pid, Signal, kill_process, setsid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::server_log::ServerLog;
use crate::server_process::FindServerError;
use crate::server_record::RunningServer;
use crate::signals::ShutdownSignals;

/// Written to standard output behind the summary.
const READY_MARK: u8 = 0;
/// A start waits up to a minute for a backup that reads the directory, and opens the database.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Time for an interrupted start to end in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(30);
/// Behind the standard streams.
const FIRST_FREE_FD: i32 = 3;
/// Limits of what a starting server may say.
const MAX_OUTPUT_BYTES: u64 = 256 * 1024;

/// What became of a start.
#[derive(Debug)]
pub enum StartOutcome {
    /// The summary of the server for the terminal, and its warnings.
    Ready { summary: String, warnings: String },
    /// Its exit code and the text of its error.
    Failed { exit: u8, error: String },
}

#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    #[error("cannot start a process for the server")]
    Spawn(#[source] io::Error),
    #[error("the server was not ready within {} seconds, and was ended", START_TIMEOUT.as_secs())]
    Timeout,
    #[error("interrupted: no server was started")]
    Interrupted,
    #[error("the server process was ended by the signal {signal} before it was ready")]
    Killed { signal: i32, error: String },
    #[error(transparent)]
    Find(#[from] FindServerError),
}

/// Runs this program with `args`, which make it call [`announce_ready`].
pub async fn start(args: &[OsString]) -> Result<StartOutcome, BackgroundError> {
    // Before the process exists: an interrupt must not leave it behind.
    let mut signals = ShutdownSignals::listen().map_err(|error| BackgroundError::Spawn(io::Error::other(error)))?;
    let mut child = spawn(args).map_err(BackgroundError::Spawn)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(BackgroundError::Spawn(io::ErrorKind::BrokenPipe.into()));
    };
    let outputs = async { tokio::join!(read_until_ready(stdout), read_all(stderr)) };
    let (output, stderr) = tokio::select! {
        outputs = timeout(START_TIMEOUT, outputs) => match outputs {
            Ok(outputs) => outputs,
            Err(_) => {
                end(&mut child).await;
                return Err(BackgroundError::Timeout);
            }
        },
        () = signals.receive() => {
            end(&mut child).await;
            return Err(BackgroundError::Interrupted);
        }
    };
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    if let Some(summary) = output.strip_suffix(&[READY_MARK]) {
        return Ok(StartOutcome::Ready { summary: String::from_utf8_lossy(summary).into_owned(), warnings: stderr });
    }
    let status = child.wait().await.map_err(BackgroundError::Spawn)?;
    failure(status, stderr)
}

/// The server of a data directory once it is ready. `None`: none runs, or it ended before it was ready.
pub async fn wait_until_ready(data: &Path) -> Result<Option<RunningServer>, BackgroundError> {
    let wait = async {
        loop {
            match RunningServer::find(data)? {
                Some(server) if server.url.is_none() => sleep(POLL_INTERVAL).await,
                found => return Ok(found),
            }
        }
    };
    timeout(START_TIMEOUT, wait).await.unwrap_or(Err(BackgroundError::Timeout))
}

/// In the new process: hands the summary to the process that waits for it, and replaces the output streams by the log. The other process may be gone,
/// which is no error.
pub fn announce_ready(summary: &str, log: &ServerLog) -> io::Result<()> {
    // Closed in programs that another thread starts meanwhile.
    let mut pipe = std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(io::stdout(), FIRST_FREE_FD)?);
    log.replace_stdio()?;
    let _ = pipe.write_all(summary.as_bytes()).and_then(|()| pipe.write_all(&[READY_MARK]));
    Ok(())
}

fn spawn(args: &[OsString]) -> io::Result<Child> {
    let mut command = std::process::Command::new(SELF_EXE);
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A session of its own: no terminal, and no signals of the one in which it is started.
    // SAFETY: the closure runs in the forked child before exec and only calls setsid(2), which is async-signal-safe.
    unsafe {
        command.pre_exec(|| setsid().map(|_| ()).map_err(io::Error::from));
    }
    tokio::process::Command::from(command).spawn()
}

/// Reads up to the ready mark or the end.
async fn read_until_ready(mut output: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is treated as the end.
    while bytes.last() != Some(&READY_MARK) && (bytes.len() as u64) < MAX_OUTPUT_BYTES {
        if !matches!(output.read_buf(&mut bytes).await, Ok(1..)) {
            break;
        }
    }
    bytes
}

async fn read_all(output: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = output.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
    bytes
}

/// Ends a process that is not ready yet, in order if it can.
async fn end(child: &mut Child) {
    // The process is not reaped yet, so its id is its own.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn failure(status: ExitStatus, error: String) -> Result<StartOutcome, BackgroundError> {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(StartOutcome::Failed { exit: u8::try_from(code).unwrap_or(1), error }),
        (None, signal) => Err(BackgroundError::Killed { signal: signal.unwrap_or(0), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[tokio::test]
    async fn a_summary_is_complete_with_its_mark_only() {
        assert_eq!(read_until_ready(&b"listens\n\0"[..]).await, b"listens\n\0");
        assert_eq!(read_until_ready(&b"listens\n"[..]).await, b"listens\n");
        assert_eq!(read_until_ready(&b""[..]).await, b"");
        let endless = tokio::io::repeat(b'x');
        assert!(read_until_ready(endless).await.len() as u64 >= MAX_OUTPUT_BYTES);
    }

    #[test]
    fn a_failed_start_has_the_exit_code_of_its_process() {
        let failure = |status| failure(ExitStatus::from_raw(status), "error: x\n".to_owned());
        assert!(matches!(failure(2 << 8), Ok(StartOutcome::Failed { exit: 2, error }) if error == "error: x\n"));
        assert!(matches!(failure(9), Err(BackgroundError::Killed { signal: 9, .. })));
    }
}
