//! `corro job logs`: prints the output of a job's ranks, or follows it until the job ends.

use clap::Args;
use corro_model::batchai::{ExecutionState, Job};

use crate::error::CliError;
use crate::job_follow::log_files::LogSelection;
use crate::job_follow::{self, LogOptions};
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::RecentJobArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
pub struct LogsArgs {
    #[command(flatten)]
    job: RecentJobArgs,
    /// Keep printing until the job ends or Ctrl-C
    #[arg(long, short = 'f')]
    follow: bool,
    /// Print only the output of this rank
    #[arg(long, short = 'r', value_name = "N")]
    rank: Option<usize>,
    /// Print only standard error, to standard output
    #[arg(long)]
    stderr: bool,
    /// Begin with the last N lines of each file
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    #[command(flatten)]
    global: GlobalArgs,
}

/// Exit code after Ctrl-C, as of a process that SIGINT ended.
const INTERRUPTED: u8 = 130;

pub async fn run(args: LogsArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let selection = LogSelection { rank: args.rank, only_stderr: args.stderr };
    let options = LogOptions { selection, tail: args.tail };
    if args.follow {
        return follow(&session, &target, options).await;
    }
    let (job, is_printed) = job_follow::print_current(&session, &target, options).await?;
    if !is_printed {
        note(silence_text(&job));
    }
    Ok(())
}

async fn follow(session: &Session, target: &ResourceRef, options: LogOptions) -> Result<(), CliError> {
    tokio::select! {
        followed = job_follow::follow(session, target, options) => {
            job_follow::note_end(session, target, &followed?).await;
            Ok(())
        }
        Ok(()) = tokio::signal::ctrl_c() => {
            let name = target.name("job");
            note(format_args!("\nThe job {name} goes on. Stop it with 'corro job stop {name}'."));
            Err(CliError::silent(INTERRUPTED))
        }
    }
}

/// Why there is no output. Pure.
fn silence_text(job: &Job) -> String {
    let (name, status) = (&job.name, &job.properties.status);
    match (status.execution_state, &status.waiting_for) {
        (ExecutionState::Queued, Some(why)) => format!("The job {name} has no output yet. It waits: {why}"),
        (ExecutionState::Queued, None) => format!("The job {name} has no output yet: it is queued."),
        (ExecutionState::Running | ExecutionState::Terminating, _) => {
            format!("The job {name} runs, and has no output yet. Wait for it with --follow.")
        }
        (ExecutionState::Succeeded, _) => format!("The job {name} has ended, and no such output was written."),
        (ExecutionState::Failed, _) => {
            format!("The job {name} failed without such output. See 'corro job why {name}' for the reason.")
        }
    }
}
