//! Follows one file of a job until the job has ended and its last byte has been printed. Bytes go to standard output
//! exactly as they are, unless that is a terminal: then only text and colours do (`terminal_filter`). Position is an offset, so a server that restarts in the middle costs neither a byte lost nor a
//! byte repeated: the same offset is asked for again, for up to a minute.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use corro_client::link::Reading;
use corro_client::{ClientError, FileLink};
use corro_model::batchai::{ExecutionState, Job, JobSpec};
use corro_model::layout::main_logs;
use corro_model::ops::JobsGet;

use crate::commands::batchai::job::file::OutputDirectory;
use crate::commands::batchai::job::wait::error_lines;
use crate::commands::retry::Retry;
use crate::failure::Failure;
use crate::session::Session;
use crate::talk::{foreign_stdout, say};
use crate::terminal_filter::ForeignText;

const LINK_MINUTES: u32 = 60;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub async fn stream(session: &Session, directory: &OutputDirectory, name: &str) -> Result<(), Failure> {
    // A task, which the runtime's other threads run: Ctrl-C works even while this one is stuck in writing to a standard
    // output that nobody takes off our hands.
    let job = directory.job.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            if rustix::termios::isatty(io::stdout()) {
                // The prompt shall not stand behind a half line, nor in the colour of a log. Not through the standard output of the program, whose
                // lock may be held by the one that is stuck.
                let _ = rustix::io::write(rustix::stdio::stdout(), b"\x1b[0m\n");
            }
            let (name, arguments) = (job.name("job"), job.arguments());
            say(format_args!("The job \"{name}\" goes on. Stop it with 'corro batchai job terminate {arguments}'."));
            std::process::exit(0);
        }
    });
    let (retry, out) = (Retry::default(), foreign_stdout());
    let silence = Silence::new(Instant::now());
    let mut follower = Follower { session, directory, name, retry, out, silence, offset: 0, pause: FIRST_PAUSE };
    let Some(mut link) = follower.find().await? else { return Ok(()) };
    loop {
        // The state first, the bytes after it: all output is there before a job is reported ended, so what is read
        // after the end was seen is the rest.
        let job = follower.job().await?;
        let ended = job.properties.status.execution_state.is_terminal();
        let read = follower.read_to_end(&mut link).await?;
        if ended {
            // Colours end with the file.
            drop(follower);
            summarize(&job);
            return Ok(());
        }
        if let Some(silent) = follower.silence.after(Instant::now(), read > 0) {
            let seconds = silent.as_secs();
            say(format_args!("The job \"{}\" runs, and has written nothing to {name} for {seconds} s.", job.name));
        }
        follower.rest(read > 0).await;
    }
}

/// Time since the last byte of output. Reported after 10 s, then each time it has doubled.
struct Silence {
    since: Instant,
    next: Duration,
}

const FIRST_SILENCE: Duration = Duration::from_secs(10);

impl Silence {
    fn new(now: Instant) -> Silence {
        Silence { since: now, next: FIRST_SILENCE }
    }

    /// What there is to tell at this moment.
    fn after(&mut self, now: Instant, news: bool) -> Option<Duration> {
        if news {
            *self = Silence::new(now);
        }
        let silent = now.saturating_duration_since(self.since);
        if silent < self.next {
            return None;
        }
        self.next = silent * 2;
        Some(silent)
    }
}

/// For whoever waits for a file that jobs of this kind never write.
fn other_name(name: &str, spec: &JobSpec) -> Option<String> {
    let (stdout, stderr) = main_logs(spec);
    let meant = match name {
        "stdout.txt" => stdout,
        "stderr.txt" => stderr,
        _ => return None,
    };
    (meant != name)
        .then(|| format!("Jobs of this kind write no {name}: the output of the first process is in {meant}."))
}

struct Follower<'a> {
    session: &'a Session,
    directory: &'a OutputDirectory,
    name: &'a str,
    retry: Retry,
    out: ForeignText<io::Stdout>,
    silence: Silence,
    /// Bytes printed so far.
    offset: u64,
    pause: Duration,
}

impl Follower<'_> {
    /// Waits for the file; `None` when the job ended without writing it.
    async fn find(&mut self) -> Result<Option<FileLink>, Failure> {
        let (mut told, mut waiting) = (false, None);
        let mut ended: Option<Job> = None;
        loop {
            if let Some(link) = self.look_up().await? {
                return Ok(Some(link));
            }
            if let Some(job) = ended {
                say(format_args!("The file \"{}\" not found for the completed job.", self.name));
                if let Some(hint) = other_name(self.name, &job.properties.spec) {
                    say(hint);
                }
                summarize(&job);
                return Ok(None);
            }
            let job = self.job().await?;
            if job.properties.status.execution_state.is_terminal() {
                // It may have come between the two requests.
                ended = Some(job);
                continue;
            }
            if !std::mem::replace(&mut told, true) {
                say(format_args!("The file \"{}\" not found. Waiting for the job to generate it.", self.name));
                if let Some(hint) = other_name(self.name, &job.properties.spec) {
                    say(hint);
                }
            }
            say_waiting(&job, &mut waiting);
            self.rest(false).await;
        }
    }

    async fn look_up(&mut self) -> Result<Option<FileLink>, Failure> {
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
            // Without the shared access signature, which grants access to the file.
            let address = url.split('?').next().unwrap_or_default();
            say(format_args!("File found with URL \"{address}\". Start streaming"));
        }
        Ok(Some(FileLink::new(&url)?.trusting(&self.session.trust()?)?))
    }

    async fn job(&mut self) -> Result<Job, Failure> {
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

    /// Prints everything from the offset to the end the file has now; returns how much that was.
    async fn read_to_end(&mut self, link: &mut FileLink) -> Result<u64, Failure> {
        let before = self.offset;
        loop {
            match self.read_once(link).await {
                Ok(true) => return Ok(self.offset - before),
                Ok(false) => self.retry.reset(),
                Err(Stop::Output(error)) => return Err(output_gone(error)),
                // A link lives an hour, a job may live days.
                Err(Stop::Client(error)) if matches!(error.status(), Some(401 | 403)) => {
                    let Some(fresh) = self.look_up().await? else { return Err(error.into()) };
                    *link = fresh;
                    self.retry.pause_or_fail_refusal(error).await?;
                }
                Err(Stop::Client(error)) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        }
    }

    /// One request; true when it found the end.
    async fn read_once(&mut self, link: &FileLink) -> Result<bool, Stop> {
        let mut body = match link.read_from(self.offset).await.map_err(Stop::Client)? {
            Reading::AtEnd => return Ok(true),
            Reading::Bytes(body) => body,
        };
        let before = self.offset;
        while let Some(bytes) = body.next().await.map_err(Stop::Client)? {
            self.out.write_all(&bytes).and_then(|()| self.out.flush()).map_err(Stop::Output)?;
            self.offset += bytes.len() as u64;
        }
        // An answer without a byte is the end too, whatever its status.
        Ok(self.offset == before)
    }

    /// Pauses, shortly while there is news and longer the longer there is none.
    async fn rest(&mut self, news: bool) {
        self.pause = if news { FIRST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(self.pause).await;
    }
}

enum Stop {
    Client(ClientError),
    Output(io::Error),
}

fn output_gone(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure { causes: vec![error.to_string()], ..Failure::new("cannot write to standard output") },
    }
}

/// Says why a queued job waits, whenever that has changed.
pub fn say_waiting(job: &Job, said: &mut Option<String>) {
    let now = &job.properties.status.waiting_for;
    if now != said
        && let Some(why) = now
    {
        say(format_args!("The job \"{}\" waits: {why}", job.name));
    }
    said.clone_from(now);
}

/// Says on standard error why the job failed, if it did.
fn summarize(job: &Job) {
    if job.properties.status.execution_state != ExecutionState::Failed {
        return;
    }
    let info = job.properties.status.execution_info.as_ref();
    let code = info.and_then(|info| info.exit_code).map_or_else(String::new, |code| format!(" with exit code {code}"));
    say(format_args!("corro: the job \"{}\" failed{code}", job.name));
    for line in info.iter().flat_map(|info| &info.errors).flat_map(error_lines) {
        say(format_args!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn silence_is_told_less_and_less_often() {
        let began = Instant::now();
        let mut silence = Silence::new(began);
        let told: Vec<u64> =
            (1..=100).filter(|second| silence.after(began + Duration::from_secs(*second), false).is_some()).collect();
        assert_eq!(told, [10, 20, 40, 80]);
        assert_eq!(silence.after(began + Duration::from_secs(170), true), None);
        assert_eq!(silence.after(began + Duration::from_secs(180), false), Some(Duration::from_secs(10)));
    }

    #[test]
    fn who_waits_for_the_wrong_file_is_told_the_right_one() {
        let spec = |kind: &str, settings: serde_json::Value| -> JobSpec {
            let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", kind: settings});
            serde_json::from_value(spec).expect("a literal")
        };
        let tensorflow = spec("tensorFlowSettings", json!({"pythonScriptFilePath": "a.py"}));
        let hint = other_name("stderr.txt", &tensorflow).expect("another file is meant");
        assert_eq!(
            hint,
            "Jobs of this kind write no stderr.txt: the output of the first process is in stderr-wk-0.txt."
        );
        assert_eq!(other_name("execution.log", &tensorflow), None);
        assert_eq!(other_name("stdout.txt", &spec("customToolkitSettings", json!({"commandLine": "a"}))), None);
    }
}
