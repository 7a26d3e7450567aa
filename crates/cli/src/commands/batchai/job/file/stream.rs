//! `corro batchai job file stream`: follows a file of a job until the job has ended and its last byte is printed. Bytes are written unchanged, except
//! on a terminal, where `terminal_filter` passes only text and colours. The position is a byte offset, so a restart of the server neither loses
//! nor repeats output: the same offset is requested again, for up to a minute.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use corro_client::sas_url::Reading;
use corro_client::{ClientError, FileLink};
use corro_model::batchai::{ExecutionState, Job, JobSpec};
use corro_model::layout::main_logs;
use corro_model::ops::JobsGet;

use crate::error::CliError;
use crate::job_follow::output_directory::OutputDirectory;
use crate::job_notes::{error_lines, goes_on_line, note_waiting_reason};
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{filtered_stdout, note};
use crate::terminal_filter::FilteredWriter;

const LINK_MINUTES: u32 = 60;
const MIN_POLL_PAUSE: Duration = Duration::from_millis(100);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(1);

pub async fn run(session: &Session, directory: &OutputDirectory, name: &str) -> Result<(), CliError> {
    // A separate task on another thread: Ctrl-C works even while this one blocks on a full standard output.
    let job = directory.job.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            if rustix::termios::isatty(io::stdout()) {
                // Reset colours and end the line before the prompt. Written directly, because the blocked thread may hold the lock of `io::stdout`.
                let _ = rustix::io::write(rustix::stdio::stdout(), b"\x1b[0m\n");
            }
            note(goes_on_line(&job));
            std::process::exit(0);
        }
    });
    let (retry, out) = (Retry::default(), filtered_stdout());
    let silence = Silence::new(Instant::now());
    let mut follower = Follower { session, directory, name, retry, out, silence, offset: 0, pause: MIN_POLL_PAUSE };
    let Some(mut link) = follower.wait_for_file().await? else { return Ok(()) };
    loop {
        // The state is read before the bytes: all output is on the share before a job is reported as ended, so a read after the end is
        // complete.
        let job = follower.fetch_job().await?;
        let ended = job.properties.status.execution_state.is_terminal();
        let read = follower.read_to_end(&mut link).await?;
        if ended {
            // Dropping the filter resets the colours.
            drop(follower);
            note_failure(&job);
            return Ok(());
        }
        if let Some(silent) = follower.silence.next_report_due(Instant::now(), read > 0) {
            let seconds = silent.as_secs();
            note(format_args!("The job \"{}\" runs, and has written nothing to {name} for {seconds} s.", job.name));
        }
        follower.pause(read > 0).await;
    }
}

/// Time since the last byte of output. Reported after 10 s, then each time it has doubled.
struct Silence {
    since: Instant,
    next_report: Duration,
}

const FIRST_SILENCE_REPORT: Duration = Duration::from_secs(10);

impl Silence {
    fn new(now: Instant) -> Silence {
        Silence { since: now, next_report: FIRST_SILENCE_REPORT }
    }

    /// The duration of the silence, if it is to be reported now.
    fn next_report_due(&mut self, now: Instant, has_output: bool) -> Option<Duration> {
        if has_output {
            *self = Silence::new(now);
        }
        let silent = now.saturating_duration_since(self.since);
        if silent < self.next_report {
            return None;
        }
        self.next_report = silent * 2;
        Some(silent)
    }
}

/// Hint for a user who waits for a file that jobs of this kind never write.
fn file_name_hint(name: &str, spec: &JobSpec) -> Option<String> {
    let (stdout, stderr) = main_logs(spec);
    let actual = match name {
        "stdout.txt" => stdout,
        "stderr.txt" => stderr,
        _ => return None,
    };
    (actual != name)
        .then(|| format!("Jobs of this kind write no {name}: the output of the first process is in {actual}."))
}

struct Follower<'a> {
    session: &'a Session,
    directory: &'a OutputDirectory,
    name: &'a str,
    retry: Retry,
    out: FilteredWriter<io::Stdout>,
    silence: Silence,
    /// Bytes printed so far.
    offset: u64,
    pause: Duration,
}

impl Follower<'_> {
    /// Waits for the file; `None` when the job ended without writing it.
    async fn wait_for_file(&mut self) -> Result<Option<FileLink>, CliError> {
        let (mut is_noted, mut waiting) = (false, None);
        let mut ended: Option<Job> = None;
        loop {
            if let Some(link) = self.look_up_url().await? {
                return Ok(Some(link));
            }
            if let Some(job) = ended {
                note(format_args!("The file \"{}\" not found for the completed job.", self.name));
                if let Some(hint) = file_name_hint(self.name, &job.properties.spec) {
                    note(hint);
                }
                note_failure(&job);
                return Ok(None);
            }
            let job = self.fetch_job().await?;
            if job.properties.status.execution_state.is_terminal() {
                // The file may have been written between the two requests: look once more.
                ended = Some(job);
                continue;
            }
            if !std::mem::replace(&mut is_noted, true) {
                note(format_args!("The file \"{}\" not found. Waiting for the job to generate it.", self.name));
                if let Some(hint) = file_name_hint(self.name, &job.properties.spec) {
                    note(hint);
                }
            }
            note_waiting_reason(&job, &mut waiting);
            self.pause(false).await;
        }
    }

    /// A new SAS URL of the file; `None` if there is no such file yet.
    async fn look_up_url(&mut self) -> Result<Option<FileLink>, CliError> {
        let files = loop {
            match self.directory.list(self.session.client()?, LINK_MINUTES).await {
                Ok(files) => break files,
                Err(error) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        };
        self.retry.reset();
        let found = files.into_iter().find(|file| file.name == self.name).and_then(|file| file.download_url);
        let Some(url) = found else { return Ok(None) };
        if self.offset == 0 {
            // The shared access signature is left out, since it grants access to the file.
            let address = url.split('?').next().unwrap_or_default();
            note(format_args!("File found with URL \"{address}\". Start streaming"));
        }
        Ok(Some(FileLink::new(&url)?.trusting(&self.session.trust()?)?))
    }

    async fn fetch_job(&mut self) -> Result<Job, CliError> {
        loop {
            match self.session.client()?.get::<JobsGet>(&self.directory.job.values()).await {
                Ok(job) => {
                    self.retry.reset();
                    return Ok(job);
                }
                Err(error) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        }
    }

    /// Prints from the offset to the current end of the file and returns the number of bytes.
    async fn read_to_end(&mut self, link: &mut FileLink) -> Result<u64, CliError> {
        let before = self.offset;
        loop {
            match self.read_once(link).await {
                Ok(true) => return Ok(self.offset - before),
                Ok(false) => self.retry.reset(),
                Err(ReadError::Output(error)) => return Err(CliError::from_output(error)),
                // The SAS URL has expired; a job may run longer than its lifetime.
                Err(ReadError::Client(error)) if matches!(error.status(), Some(401 | 403)) => {
                    let Some(fresh) = self.look_up_url().await? else { return Err(error.into()) };
                    *link = fresh;
                    self.retry.pause_or_fail_refusal(error).await?;
                }
                Err(ReadError::Client(error)) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        }
    }

    /// Prints the response of one request. `true` if it was at the end of the file.
    async fn read_once(&mut self, link: &FileLink) -> Result<bool, ReadError> {
        let mut body = match link.read_from(self.offset).await.map_err(ReadError::Client)? {
            Reading::AtEnd => return Ok(true),
            Reading::Bytes(body) => body,
        };
        let before = self.offset;
        while let Some(bytes) = body.next().await.map_err(ReadError::Client)? {
            self.out.write_all(&bytes).and_then(|()| self.out.flush()).map_err(ReadError::Output)?;
            self.offset += bytes.len() as u64;
        }
        // A response without a byte is the end too, whatever its status.
        Ok(self.offset == before)
    }

    /// Pauses between polls; the pause doubles while there is no output.
    async fn pause(&mut self, has_output: bool) {
        self.pause = if has_output { MIN_POLL_PAUSE } else { (self.pause * 2).min(MAX_POLL_PAUSE) };
        tokio::time::sleep(self.pause).await;
    }
}

enum ReadError {
    Client(ClientError),
    Output(io::Error),
}

/// Prints to standard error why the job failed, if it did.
fn note_failure(job: &Job) {
    if job.properties.status.execution_state != ExecutionState::Failed {
        return;
    }
    let info = job.properties.status.execution_info.as_ref();
    let code = info.and_then(|info| info.exit_code).map_or_else(String::new, |code| format!(" with exit code {code}"));
    note(format_args!("corro: the job \"{}\" failed{code}", job.name));
    for line in info.iter().flat_map(|info| &info.errors).flat_map(error_lines) {
        note(format_args!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn silence_is_reported_less_and_less_often() {
        let began = Instant::now();
        let mut silence = Silence::new(began);
        let reported: Vec<u64> = (1..=100)
            .filter(|second| silence.next_report_due(began + Duration::from_secs(*second), false).is_some())
            .collect();
        assert_eq!(reported, [10, 20, 40, 80]);
        assert_eq!(silence.next_report_due(began + Duration::from_secs(170), true), None);
        assert_eq!(silence.next_report_due(began + Duration::from_secs(180), false), Some(Duration::from_secs(10)));
    }

    #[test]
    fn the_right_file_name_is_suggested() {
        let spec = |kind: &str, settings: serde_json::Value| -> JobSpec {
            let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", kind: settings});
            serde_json::from_value(spec).expect("a literal")
        };
        let tensorflow = spec("tensorFlowSettings", json!({"pythonScriptFilePath": "a.py"}));
        let hint = file_name_hint("stderr.txt", &tensorflow).expect("another name");
        assert_eq!(
            hint,
            "Jobs of this kind write no stderr.txt: the output of the first process is in stderr-wk-0.txt."
        );
        assert_eq!(file_name_hint("execution.log", &tensorflow), None);
        assert_eq!(file_name_hint("stdout.txt", &spec("customToolkitSettings", json!({"commandLine": "a"}))), None);
    }
}
