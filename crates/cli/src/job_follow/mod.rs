//! The output of a job: prints what there is, or follows it to the job's end with the reasons why it waits. Offsets are byte positions in the log files,
//! so a restart of the server neither loses nor repeats output.
//!
//! Reading order: this file, [`log_files`] (which files a job has), [`lines`] (labels, selection by rank, last lines), [`output_directory`] (listing).

pub mod lines;
pub mod log_files;
pub mod output_directory;

use std::io::{self, Write};
use std::time::Duration;

use corro_client::sas_url::Reading;
use corro_client::{ClientError, FileLink};
use corro_model::batchai::{ExecutionState, Job, STDOUTERR};
use corro_model::ops::JobsGet;
use corro_model::time::Span;

use crate::error::CliError;
use crate::job_notes::{note_failure, note_waiting_reason};
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::note;
use crate::terminal_filter::FilteredWriter;
use lines::{LinePrinter, TailScan};
use log_files::{LogFileName, LogSelection, LogSelectionError, plan_log_files};
use output_directory::OutputDirectory;

const LINK_MINUTES: u32 = 60;
const MIN_POLL_PAUSE: Duration = Duration::from_millis(50);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(1);
/// Part of a file that is searched for its last lines first; it grows until they are found.
const FIRST_TAIL_BYTES: u64 = 64 * 1024;
const TAIL_GROWTH: u64 = 8;

/// Output to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    pub selection: LogSelection,
    /// Begin with the last lines of each file.
    pub tail: Option<usize>,
}

/// Prints the output of a job until it ends, and its state when that changes. Returns the finished job.
pub async fn follow(session: &Session, target: &ResourceRef, options: LogOptions) -> Result<Job, CliError> {
    Follower::new(session, target, options).follow().await
}

/// Prints the output that there is now. Returns the job, and whether anything was printed.
pub async fn print_current(
    session: &Session,
    target: &ResourceRef,
    options: LogOptions,
) -> Result<(Job, bool), CliError> {
    Follower::new(session, target, options).print_current().await
}

/// Prints how the job ended, and why it failed.
pub async fn note_end(session: &Session, target: &ResourceRef, job: &Job) {
    let info = job.properties.status.execution_info.as_ref();
    let name = &job.name;
    let took = info.and_then(|info| Some(Span(info.end_time?.since(info.start_time)).in_words()));
    let took = took.map(|took| format!(" after {took}")).unwrap_or_default();
    if job.properties.status.execution_state == ExecutionState::Succeeded {
        note(format_args!("The job {name} succeeded{took}."));
        return;
    }
    let code = info.and_then(|info| info.exit_code).map_or_else(String::new, |code| format!(" with exit code {code}"));
    note(format_args!("The job {name} failed{code}{took}."));
    note_failure(session, target, job).await;
}

/// A log file that is read.
struct LogFile {
    name: LogFileName,
    link: Option<FileLink>,
    /// Where to go on; `None` before the first read.
    offset: Option<u64>,
    printer: LinePrinter,
}

impl LogFile {
    fn new(name: LogFileName) -> LogFile {
        let printer = LinePrinter::new(name.label.clone(), name.only_rank);
        LogFile { name, link: None, offset: None, printer }
    }

    fn position(&self) -> u64 {
        self.offset.unwrap_or(0)
    }
}

struct Follower<'a> {
    session: &'a Session,
    options: LogOptions,
    directory: OutputDirectory,
    retry: Retry,
    stdout: FilteredWriter<io::Stdout>,
    stderr: FilteredWriter<io::Stderr>,
}

impl<'a> Follower<'a> {
    fn new(session: &'a Session, target: &ResourceRef, options: LogOptions) -> Follower<'a> {
        let directory = OutputDirectory { job: target.clone(), id: STDOUTERR.to_owned(), path: ".".to_owned() };
        let (stdout, stderr) = (FilteredWriter::new(io::stdout()), FilteredWriter::new(io::stderr()));
        Follower { session, options, directory, retry: Retry::default(), stdout, stderr }
    }

    async fn follow(mut self) -> Result<Job, CliError> {
        let mut files: Option<Vec<LogFile>> = None;
        let (mut waiting, mut is_started, mut pause) = (None, false, MIN_POLL_PAUSE);
        loop {
            // The state is read before the bytes: all output is on the share before a job is reported as ended, so a read after the end is complete.
            let job = self.job().await?;
            let state = job.properties.status.execution_state;
            note_waiting_reason(&job, &mut waiting);
            if state == ExecutionState::Running && !std::mem::replace(&mut is_started, true) {
                let nodes = job.properties.spec.node_count;
                let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
                note(format_args!("The job {} runs on {nodes}.", job.name));
            }
            let files = match &mut files {
                Some(files) => files,
                None => files.insert(self.log_files(&job)?),
            };
            let read = if state == ExecutionState::Queued { 0 } else { self.read_all(files).await? };
            if state.is_terminal() {
                self.flush_partial_lines(files)?;
                return Ok(job);
            }
            pause = if read > 0 { MIN_POLL_PAUSE } else { (pause * 2).min(MAX_POLL_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    async fn print_current(mut self) -> Result<(Job, bool), CliError> {
        let job = self.job().await?;
        let mut files = self.log_files(&job)?;
        let status = &job.properties.status;
        if status.execution_state == ExecutionState::Queued && status.lost_attempts.is_empty() {
            return Ok((job, false));
        }
        let read = self.read_all(&mut files).await?;
        self.flush_partial_lines(&mut files)?;
        Ok((job, read > 0))
    }

    fn log_files(&self, job: &Job) -> Result<Vec<LogFile>, CliError> {
        let plan = plan_log_files(&job.properties.spec, self.options.selection).map_err(selection_error)?;
        if plan.omitted_ranks > 0 {
            let shown = job.properties.spec.rank_count() - plan.omitted_ranks;
            note(format_args!(
                "The output of the first {shown} ranks is shown; see that of another with 'corro job logs {} --rank N'.",
                job.name
            ));
        }
        Ok(plan.files.into_iter().map(LogFile::new).collect())
    }

    async fn job(&mut self) -> Result<Job, CliError> {
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

    /// Prints what all files have beyond their offsets; returns the number of bytes.
    async fn read_all(&mut self, files: &mut [LogFile]) -> Result<u64, CliError> {
        if files.iter().any(|file| file.link.is_none()) {
            self.find_links(files).await?;
        }
        let mut read = 0;
        for file in files.iter_mut().filter(|file| file.link.is_some()) {
            read += self.read_file(file).await?;
        }
        Ok(read)
    }

    async fn find_links(&mut self, files: &mut [LogFile]) -> Result<(), CliError> {
        let found = loop {
            match self.directory.list(self.session.client()?, LINK_MINUTES).await {
                Ok(found) => break found,
                Err(error) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        };
        self.retry.reset();
        for file in files.iter_mut().filter(|file| file.link.is_none()) {
            let Some(listed) = found.iter().find(|listed| listed.name == file.name.name) else { continue };
            let Some(url) = &listed.download_url else { continue };
            let link = FileLink::new(url)?.trusting(&self.session.trust()?)?;
            if file.offset.is_none() {
                let length = listed.properties.as_ref().map_or(0, |properties| properties.content_length);
                file.offset = Some(match self.options.tail {
                    Some(max_lines) => self.tail_offset(&link, file.name.only_rank, max_lines, length).await?,
                    None => 0,
                });
            }
            file.link = Some(link);
        }
        Ok(())
    }

    /// The offset of the last lines of a file that has about `length` bytes.
    async fn tail_offset(
        &mut self,
        link: &FileLink,
        only_rank: Option<usize>,
        max_lines: usize,
        length: u64,
    ) -> Result<u64, CliError> {
        let mut searched = FIRST_TAIL_BYTES;
        loop {
            let start = length.saturating_sub(searched);
            match scan_tail(link, TailScan::new(max_lines, only_rank, start), start).await {
                Ok(Some(offset)) => return Ok(offset),
                Ok(None) if start == 0 => return Ok(0),
                Ok(None) => searched = searched.saturating_mul(TAIL_GROWTH),
                Err(error) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        }
    }

    /// Prints from the offset to the current end of a file.
    async fn read_file(&mut self, file: &mut LogFile) -> Result<u64, CliError> {
        let before = file.position();
        loop {
            match self.read_once(file).await {
                Ok(true) => return Ok(file.position() - before),
                Ok(false) => self.retry.reset(),
                Err(ReadError::Output(error)) => return Err(CliError::from_output(error)),
                // The SAS URL has expired; a job may run longer than its lifetime.
                Err(ReadError::Client(error)) if matches!(error.status(), Some(401 | 403)) => {
                    file.link = None;
                    self.retry.pause_or_fail_refusal(error).await?;
                    self.find_links(std::slice::from_mut(file)).await?;
                    if file.link.is_none() {
                        return Ok(file.position() - before);
                    }
                }
                Err(ReadError::Client(error)) => self.retry.pause_or_fail(error, &self.directory.job).await?,
            }
        }
    }

    /// Prints the response of one request. `true` if it was at the end of the file.
    async fn read_once(&mut self, file: &mut LogFile) -> Result<bool, ReadError> {
        let Some(link) = &file.link else { return Ok(true) };
        let before = file.position();
        let mut body = match link.read_from(before).await.map_err(ReadError::Client)? {
            Reading::AtEnd => return Ok(true),
            Reading::Bytes(body) => body,
        };
        let mut position = before;
        while let Some(bytes) = body.next().await.map_err(ReadError::Client)? {
            let text = file.printer.push(&bytes);
            self.write(&file.name, &text).map_err(ReadError::Output)?;
            position += bytes.len() as u64;
            file.offset = Some(position);
        }
        Ok(position == before)
    }

    /// Standard error of the job goes to that of this program, unless it is all that was asked for.
    fn write(&mut self, file: &LogFileName, text: &[u8]) -> io::Result<()> {
        match file.is_stderr && !self.options.selection.only_stderr {
            true => self.stderr.write_all(text).and_then(|()| self.stderr.flush()),
            false => self.stdout.write_all(text).and_then(|()| self.stdout.flush()),
        }
    }

    fn flush_partial_lines(&mut self, files: &mut [LogFile]) -> Result<(), CliError> {
        for file in files {
            let text = file.printer.finish();
            self.write(&file.name, &text).map_err(CliError::from_output)?;
        }
        Ok(())
    }
}

/// Reads from `start` to the end of the file.
async fn scan_tail(link: &FileLink, mut scan: TailScan, start: u64) -> Result<Option<u64>, ClientError> {
    if let Reading::Bytes(mut body) = link.read_from(start).await? {
        while let Some(bytes) = body.next().await? {
            scan.push(&bytes);
        }
    }
    Ok(scan.finish())
}

fn selection_error(error: LogSelectionError) -> CliError {
    let hint = match &error {
        LogSelectionError::NoSuchRank { .. } => None,
        LogSelectionError::NotNumbered { .. } => Some(
            "leave --rank out; jobs of 'corro submit', and those with prefixOutputWithRank in their job file, number the lines",
        ),
    };
    let error = CliError::from_error(&error);
    hint.into_iter().fold(error, CliError::hint)
}

enum ReadError {
    Client(ClientError),
    Output(io::Error),
}
