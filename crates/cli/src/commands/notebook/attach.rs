//! From a notebook job to the browser: waits until the job runs and its Jupyter listens, prints the address, and forwards connections until Ctrl-C or the
//! end of the job. If the job is moved to other nodes, its Jupyter is found there.

use std::time::Duration;

use corro_model::Timestamp;
use corro_model::batchai::{ExecutionState, Job};
use corro_model::node::TunnelTarget;
use corro_model::notebook::MAX_DESCRIPTION_BYTES;
use corro_model::ops::{JobsTerminate, NoBody};
use tokio::time::{Instant, sleep};

use super::endpoint::Endpoint;
use crate::error::CliError;
use crate::job_follow::{self, LogOptions};
use crate::job_notes::note_waiting_reason;
use crate::job_watch::{JobWatch, running_since};
use crate::local_port::{Destination, LocalPort};
use crate::progress::Spinner;
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{note, print};

/// Lines of the job's output that are shown if Jupyter did not start.
const MAX_LOG_LINES: usize = 20;
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// A node that has just been given the job may not know it yet.
const ERROR_RETRY: Duration = Duration::from_secs(5);
/// The same for a server or an agent that is away.
const UNREACHABLE_RETRY: Duration = Duration::from_secs(60);

/// Runs until Ctrl-C or the end of the job.
pub async fn attach(
    session: &Session,
    target: &ResourceRef,
    stop_on_exit: bool,
    port: LocalPort,
) -> Result<(), CliError> {
    let attachment = Attachment { session, target, watch: JobWatch::new(session, target), port: &port };
    let ended = tokio::select! {
        ended = attachment.run() => Some(ended),
        _ = tokio::signal::ctrl_c() => None,
    };
    drop(port);
    match ended {
        Some(Ok(end)) => {
            if !end.was_reached && end.job.properties.status.execution_state == ExecutionState::Failed {
                // Jupyter's own words about why it did not start.
                let options = LogOptions { tail: Some(MAX_LOG_LINES), ..LogOptions::default() };
                job_follow::print_current(session, target, options).await?;
            }
            job_follow::note_end(session, target, &end.job).await;
            match end.job.properties.status.execution_state {
                ExecutionState::Succeeded => Ok(()),
                _ => Err(CliError::silent(1)),
            }
        }
        Some(Err(error)) => Err(error),
        None => leave(session, target, stop_on_exit).await,
    }
}

/// After Ctrl-C.
async fn leave(session: &Session, target: &ResourceRef, stop: bool) -> Result<(), CliError> {
    let name = target.name("job");
    if !stop {
        note(format_args!(
            "\nThe notebook {name} goes on. Reach it again with 'corro notebook attach {name}'; stop it with 'corro job stop {name}'."
        ));
        return Ok(());
    }
    note(format_args!("\nStopping the notebook {name} ..."));
    let stopped = session.client()?.run::<JobsTerminate>(&target.values(), &NoBody {}).await;
    stopped.map_err(|error| target.request_error(error))?;
    note(format_args!("Stopped. Its files: 'corro fetch {name}'."));
    Ok(())
}

/// A job that has ended.
struct End {
    job: Job,
    /// Whether its Jupyter was reached before.
    was_reached: bool,
}

struct Attachment<'a> {
    session: &'a Session,
    target: &'a ResourceRef,
    watch: JobWatch<'a>,
    port: &'a LocalPort,
}

impl Attachment<'_> {
    /// Serves connections until the job has ended.
    async fn run(&self) -> Result<End, CliError> {
        let mut shown: Option<String> = None;
        loop {
            let job = self.wait_until_running().await?;
            let Some(since) = running_since(&job) else { return Ok(End { job, was_reached: shown.is_some() }) };
            // Without one the job ended or was moved.
            let Some(endpoint) = self.find_jupyter(since, shown.is_some()).await? else { continue };
            let (client, job) = (self.session.client()?.clone(), self.target.clone());
            self.port.set_destination(Some(Destination { client, job, node: None, port: endpoint.port }));
            let url = endpoint.url(self.port.number);
            if shown.as_ref() != Some(&url) {
                note("Jupyter runs. Open this address in a browser; it logs in anyone on this machine who has it:");
                print(&url);
                note("Ctrl-C ends this command.");
                shown = Some(url);
            } else {
                note("Jupyter can be reached again.");
            }
            self.watch.wait_for_change(since).await?;
            self.port.set_destination(None);
        }
    }

    /// Returns the job when it runs or has ended.
    async fn wait_until_running(&self) -> Result<Job, CliError> {
        let _spinner = Spinner::start("Waiting for the job to start");
        let (mut retry, mut waiting) = (Retry::default(), None);
        loop {
            let job = self.watch.get(&mut retry).await?;
            note_waiting_reason(&job, &mut waiting);
            if running_since(&job).is_some() || job.properties.status.execution_state.is_terminal() {
                return Ok(job);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the Jupyter of the run that began at `since` listens. `None`: the job no longer runs so. `is_again` after a change of the job.
    async fn find_jupyter(&self, since: Timestamp, is_again: bool) -> Result<Option<Endpoint>, CliError> {
        let _spinner = Spinner::start(if is_again { "Connecting again" } else { "Waiting for Jupyter" });
        let mut retry = Retry::default();
        let mut failing_since: Option<Instant> = None;
        loop {
            if running_since(&self.watch.get(&mut retry).await?) != Some(since) {
                return Ok(None);
            }
            match self.describe().await {
                Ok(Some(endpoint)) => return Ok(Some(endpoint)),
                Ok(None) => failing_since = None,
                Err(error) => {
                    let limit = if error.is_transient { UNREACHABLE_RETRY } else { ERROR_RETRY };
                    if failing_since.get_or_insert_with(Instant::now).elapsed() >= limit {
                        return Err(error);
                    }
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Where Jupyter listens, as the agent of the job's node reads it. `None`: it does not listen yet.
    async fn describe(&self) -> Result<Option<Endpoint>, CliError> {
        let opened = self.session.client()?.open_tunnel(&self.target.values(), TunnelTarget::Notebook, None).await;
        let tunnel = match opened {
            Ok(tunnel) => tunnel,
            // Its environment is made, which may take minutes.
            Err(error) if error.api().is_some_and(|error| error.code == "JobNotReady") => return Ok(None),
            Err(error) => {
                let is_transient = error.is_transient();
                return Err(CliError { is_transient, ..self.target.request_error(error) });
            }
        };
        let read = tunnel.read_to_end(MAX_DESCRIPTION_BYTES).await;
        let output = read.map_err(|error| CliError { is_transient: true, ..CliError::from_error(&error) })?;
        Ok(Endpoint::parse(&output))
    }
}
