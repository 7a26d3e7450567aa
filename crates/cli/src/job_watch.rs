//! Repeated questions about the state of one job, for commands that go on while it runs. A server that restarts is waited for.

use std::time::Duration;

use corro_model::Timestamp;
use corro_model::batchai::{ExecutionState, Job};
use corro_model::ops::JobsGet;
use tokio::time::sleep;

use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;

const INTERVAL: Duration = Duration::from_secs(2);

pub struct JobWatch<'a> {
    session: &'a Session,
    target: &'a ResourceRef,
}

/// Start of the run of a job that runs. A job that was moved to other nodes has another one.
pub fn running_since(job: &Job) -> Option<Timestamp> {
    let status = &job.properties.status;
    let info = status.execution_info.as_ref().filter(|_| status.execution_state == ExecutionState::Running);
    info.map(|info| info.start_time)
}

impl<'a> JobWatch<'a> {
    pub fn new(session: &'a Session, target: &'a ResourceRef) -> JobWatch<'a> {
        JobWatch { session, target }
    }

    pub async fn get(&self, retry: &mut Retry) -> Result<Job, CliError> {
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

    /// Returns the job when it no longer runs as it does since `since`.
    pub async fn wait_for_change(&self, since: Timestamp) -> Result<Job, CliError> {
        let mut retry = Retry::after_answer();
        loop {
            sleep(INTERVAL).await;
            let job = self.get(&mut retry).await?;
            if running_since(&job) != Some(since) {
                return Ok(job);
            }
        }
    }
}
