//! `corro job stop`: stops a queued or running job. Stopping a job that has ended changes nothing.

use clap::Args;
use corro_model::batchai::Job;
use corro_model::ops::{JobsGet, JobsTerminate, NoBody};

use crate::commands::batchai::job::Jobs;
use crate::error::CliError;
use crate::job_notes::state_name;
use crate::progress::Spinner;
use crate::resource::actions;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct StopArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Return at once, without waiting until the job has stopped
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: StopArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let before = job(&session, &target).await?;
    if before.properties.status.execution_state.is_terminal() {
        return report_ended(&args, &session, &before);
    }
    let client = session.client()?;
    let started = match client.start::<JobsTerminate>(&target.values(), &NoBody {}).await {
        Ok(started) => started,
        Err(error) => {
            // It may have ended in between.
            let now = job(&session, &target).await?;
            if now.properties.status.execution_state.is_terminal() {
                return report_ended(&args, &session, &now);
            }
            return Err(target.request_error(error));
        }
    };
    let (name, experiment) = (target.name("job"), target.name("experiment"));
    if args.no_wait {
        print(format_args!("Job {name} of experiment {experiment} is being stopped"));
        return Ok(());
    }
    let spinner = Spinner::start("Stopping");
    client.wait(started).await?;
    drop(spinner);
    if args.global.is_output_chosen() {
        return actions::print::<Jobs>(&session, &job(&session, &target).await?);
    }
    print(format_args!("Stopped job {name} of experiment {experiment}"));
    Ok(())
}

async fn job(session: &Session, target: &ResourceRef) -> Result<Job, CliError> {
    session.client()?.get::<JobsGet>(&target.values()).await.map_err(|error| target.request_error(error))
}

fn report_ended(args: &StopArgs, session: &Session, job: &Job) -> Result<(), CliError> {
    if args.global.is_output_chosen() {
        return actions::print::<Jobs>(session, job);
    }
    let state = state_name(job.properties.status.execution_state);
    print(format_args!("Job {} has ended already: it {state}", job.name));
    Ok(())
}
