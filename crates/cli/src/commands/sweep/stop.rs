//! `corro sweep stop`: terminates the trials that have not ended. Queued ones first, so that none of them starts on a node that becomes free.

use corro_model::batchai::{ExecutionState, Job};
use corro_model::ops::{JobsTerminate, NoBody};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::find::{Sweep, SweepNameArgs};
use crate::error::CliError;
use crate::output::units::format_count;
use crate::progress::Spinner;
use crate::session::Session;
use crate::stdio::note;

/// Trials that are stopped at the same time.
const PARALLEL_STOPS: usize = 8;

pub async fn run(args: SweepNameArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let mut sweep = args.find(&session).await?;
    let mut n_stopped = 0;
    loop {
        let (queued, started): (Vec<&Job>, Vec<&Job>) = sweep
            .trials
            .iter()
            .filter(|job| !state(job).is_terminal())
            .partition(|job| state(job) == ExecutionState::Queued);
        if queued.is_empty() && started.is_empty() {
            break;
        }
        n_stopped += queued.len() + started.len();
        let _spinner = Spinner::start("Stopping");
        stop(&session, &sweep, queued).await?;
        stop(&session, &sweep, started).await?;
        // Another client may be creating trials.
        match Sweep::read(session.client()?, &sweep.any_job, &sweep.name).await? {
            Some(now) => sweep = now,
            None => break,
        }
    }
    note(match n_stopped {
        0 => format!("All trials of the sweep {} had ended.", sweep.name),
        n => format!("Stopped {} of the sweep {}.", format_count(n as i64, "trial"), sweep.name),
    });
    Ok(())
}

fn state(job: &Job) -> ExecutionState {
    job.properties.status.execution_state
}

/// Stops jobs and waits for their ends.
async fn stop(session: &Session, sweep: &Sweep, jobs: Vec<&Job>) -> Result<(), CliError> {
    let client = session.client()?;
    stream::iter(jobs)
        .map(|job| async move {
            let target = sweep.job(&job.name)?;
            match client.run::<JobsTerminate>(&target.values(), &NoBody {}).await {
                Err(error) if !error.is_not_found() => Err(target.request_error(error)),
                _ => Ok(()),
            }
        })
        .buffer_unordered(PARALLEL_STOPS)
        .try_collect()
        .await
}
