//! `corro job delete`: deletes a job after a confirmation. Its output stays on the share.

use clap::Args;
use corro_model::ops::JobsDelete;

use crate::commands::batchai::job::Jobs;
use crate::error::CliError;
use crate::resource::actions::{self, EndAction, EndOptions};
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Return at once, without waiting until the job is deleted
    #[arg(long)]
    no_wait: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: DeleteArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let (name, place) = (target.name("job").to_owned(), target.name("experiment").to_owned());
    let action = EndAction {
        progress_text: "Deleting",
        is_deletion: true,
        warning: Some(|targets| {
            let name = |parameter| targets.first().map_or("", |target| target.name(parameter));
            format!("This deletes the job {} of experiment {}.", name("job"), name("experiment"))
        }),
    };
    let options = EndOptions { is_confirmed: args.yes, no_wait: args.no_wait };
    actions::end_targets::<Jobs, JobsDelete>(&session, &[target], action, options).await?;
    let done = if args.no_wait { "is being deleted" } else { "is deleted; its output stays on the share" };
    print(format_args!("Job {name} of experiment {place} {done}"));
    Ok(())
}
