//! From a notebook job to the browser: waits until the job runs and its Jupyter listens, prints the address, and forwards connections until Ctrl-C or the
//! end of the job. A lost SSH connection is made again, also to another node if the job was moved.

use std::sync::Arc;
use std::time::Duration;

use corro_model::batchai::{ExecutionState, Job};
use corro_model::ops::{JobsGet, JobsTerminate, NoBody};
use tokio::time::{Instant, sleep};

use super::LocalArgs;
use super::endpoint::{self, Endpoint};
use super::tunnel::Tunnel;
use crate::error::CliError;
use crate::job_follow::{self, LogOptions};
use crate::job_notes::note_waiting_reason;
use crate::node_ssh::connection::{Connection, JobExecTarget};
use crate::node_ssh::job_login::{self, AdminCredentialArgs, NodeChoice};
use crate::progress::Spinner;
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{note, print};

/// Lines of the job's output that are shown if Jupyter did not start.
const MAX_LOG_LINES: usize = 20;
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Interval of the question whether the job still runs, while its notebook is used.
const WATCH_INTERVAL: Duration = Duration::from_secs(3);
/// A node that cannot be reached is tried again for this long.
const UNREACHABLE_RETRY: Duration = Duration::from_secs(60);
/// The same for other errors: a node that has just been given the job may not know it yet.
const ERROR_RETRY: Duration = Duration::from_secs(5);

/// Runs until Ctrl-C or the end of the job.
pub async fn attach(session: &Session, target: &ResourceRef, local: LocalArgs, tunnel: Tunnel) -> Result<(), CliError> {
    let attachment = Attachment { session, target, admin: &local.admin, tunnel: &tunnel };
    let ended = tokio::select! {
        ended = attachment.run() => Some(ended),
        _ = tokio::signal::ctrl_c() => None,
    };
    drop(tunnel);
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
        None => leave(session, target, local.stop_on_exit).await,
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
    admin: &'a AdminCredentialArgs,
    tunnel: &'a Tunnel,
}

impl Attachment<'_> {
    /// Serves connections until the job has ended.
    async fn run(&self) -> Result<End, CliError> {
        let mut shown: Option<String> = None;
        loop {
            let job = self.wait_until_running().await?;
            if job.properties.status.execution_state.is_terminal() {
                return Ok(End { job, was_reached: shown.is_some() });
            }
            let (connection, endpoint) = match self.find_jupyter(shown.is_some()).await? {
                Some(found) => found,
                // The job ended or was moved.
                None => continue,
            };
            self.tunnel.set_route(Arc::clone(&connection), endpoint.port);
            let url = endpoint.url(self.tunnel.local_port);
            if shown.as_ref() != Some(&url) {
                note("Jupyter runs. Open this address in a browser; it logs in anyone on this machine who has it:");
                print(&url);
                note("Ctrl-C ends this command.");
                shown = Some(url);
            } else {
                note("Jupyter can be reached again.");
            }
            self.wait_for_loss(&connection).await?;
            self.tunnel.clear_route();
        }
    }

    async fn job(&self, retry: &mut Retry) -> Result<Job, CliError> {
        loop {
            match self.session.client()?.get::<JobsGet>(&self.target.values()).await {
                Ok(job) => {
                    retry.reset();
                    return Ok(job);
                }
                Err(error) => retry.pause_or_fail(error, self.target).await?,
            }
        }
    }

    /// Returns the job when it runs or has ended.
    async fn wait_until_running(&self) -> Result<Job, CliError> {
        let _spinner = Spinner::start("Waiting for the job to start");
        let (mut retry, mut waiting) = (Retry::default(), None);
        loop {
            let job = self.job(&mut retry).await?;
            note_waiting_reason(&job, &mut waiting);
            let state = job.properties.status.execution_state;
            if state == ExecutionState::Running || state.is_terminal() {
                return Ok(job);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Connects to the job's node and waits until its Jupyter listens. `None`: the job no longer runs. `is_again` after a lost connection.
    async fn find_jupyter(&self, is_again: bool) -> Result<Option<(Arc<Connection>, Endpoint)>, CliError> {
        let _spinner = Spinner::start(if is_again { "Connecting again" } else { "Waiting for Jupyter" });
        let (mut retry, mut connected) = (Retry::default(), None::<(Arc<Connection>, JobExecTarget)>);
        let mut failing_since: Option<Instant> = None;
        loop {
            if self.job(&mut retry).await?.properties.status.execution_state != ExecutionState::Running {
                return Ok(None);
            }
            let found = match &connected {
                Some((connection, exec_target)) => {
                    let output = connection.read_in_job(exec_target, &endpoint::read_command()).await;
                    output.map(|output| Endpoint::parse(&output).map(|endpoint| (Arc::clone(connection), endpoint)))
                }
                None => {
                    let choice = NodeChoice::default();
                    // Without the job's secrets the token would be masked.
                    let opened = job_login::connect(self.session, self.target, choice, self.admin.clone(), true).await;
                    opened.map(|(connection, exec_target)| {
                        connected = Some((Arc::new(connection), exec_target));
                        None
                    })
                }
            };
            match found {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => failing_since = None,
                Err(error) => {
                    connected = None;
                    let limit = if error.is_transient { UNREACHABLE_RETRY } else { ERROR_RETRY };
                    if failing_since.get_or_insert_with(Instant::now).elapsed() >= limit {
                        return Err(error);
                    }
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns when the connection is lost or the job no longer runs.
    async fn wait_for_loss(&self, connection: &Connection) -> Result<(), CliError> {
        let mut retry = Retry::default();
        loop {
            sleep(WATCH_INTERVAL).await;
            let is_running = self.job(&mut retry).await?.properties.status.execution_state == ExecutionState::Running;
            if !is_running || connection.handle().is_closed() {
                return Ok(());
            }
        }
    }
}
