//! Follows a submitted job until it ends. Ctrl-C leaves the job running; a second one stops it.

use std::io::{self, Write};
use std::time::Duration;

use corro_model::batchai::{ExecutionState, Job};
use corro_model::ops::{JobsTerminate, NoBody};

use crate::commands::batchai::job::wait::{INTERRUPTED, exit_code};
use crate::error::CliError;
use crate::job_follow::{self, LogOptions};
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;
use crate::stdio::note;

/// Time after Ctrl-C in which a second one stops the job.
const SECOND_INTERRUPT_WAIT: Duration = Duration::from_secs(3);

/// Follows the job to its end. Returns the finished job, or an error with an exit code: that of the job, or 130 after Ctrl-C.
pub async fn follow(session: &Session, target: &ResourceRef) -> Result<Job, CliError> {
    let interrupt = tokio::signal::ctrl_c();
    let job = tokio::select! {
        followed = job_follow::follow(session, target, LogOptions::default()) => followed?,
        Ok(()) = interrupt => return Err(interrupted(session, target).await),
    };
    job_follow::note_end(session, target, &job).await;
    Ok(job)
}

/// The error of a command whose job failed; `Ok` if it succeeded.
pub fn result_of(job: &Job) -> Result<(), CliError> {
    match job.properties.status.execution_state {
        ExecutionState::Succeeded => Ok(()),
        _ => Err(CliError::silent(exit_code(job.properties.status.execution_info.as_ref()))),
    }
}

/// After Ctrl-C: says that the job goes on; a second Ctrl-C stops it.
async fn interrupted(session: &Session, target: &ResourceRef) -> CliError {
    let name = target.name("job");
    let _ = io::stdout().write_all(b"\n");
    note(format_args!(
        "The job {name} goes on. See its output with 'corro job logs {name} --follow'; stop it with 'corro job stop {name}', \
         or with Ctrl-C within {} seconds.",
        SECOND_INTERRUPT_WAIT.as_secs()
    ));
    tokio::select! {
        () = tokio::time::sleep(SECOND_INTERRUPT_WAIT) => (),
        Ok(()) = tokio::signal::ctrl_c() => {
            note(format_args!("Stopping the job {name}"));
            let stopped = match session.client() {
                Ok(client) => client.run::<JobsTerminate>(&target.values(), &NoBody {}).await,
                Err(error) => return error,
            };
            match stopped {
                Ok(_) => note(format_args!("The job {name} is stopped.")),
                Err(error) => return target.request_error(error),
            }
        }
    }
    CliError::silent(INTERRUPTED)
}
