//! `corro job why`: in plain words, why a job waits, runs, failed or ended. Batch AI had no such command, so it stands
//! beside the compatible ones. Says what the server told; decides nothing.

use corro_model::batchai::ExecutionState;
use corro_model::ops::JobsWhy;

use crate::commands::job::JobNameArgs;
use crate::commands::resource_args::Names;
use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::output::escape_controls;
use crate::session::{GlobalArgs, Session};
use crate::talk::tell;

pub async fn run(args: JobNameArgs) -> Result<(), Failure> {
    let target = args.target()?;
    let session = Session::open(&GlobalArgs::default())?;
    let told = session.client()?.get::<JobsWhy>(&target.values()).await;
    let told = told.map_err(|error| target.failure_of_show(error))?;
    for line in told.lines() {
        tell(escape_controls(&line));
    }
    if told.state == ExecutionState::Running {
        let job = target.name("job");
        tell(format_args!("See what its processes use with 'corro job top {job} {}'.", place(&target)));
    }
    Ok(())
}

/// The command that says more.
pub fn ask_why(target: &Target) -> String {
    format!("corro job why {} {}", target.name("job"), place(target))
}

fn place(target: &Target) -> String {
    format!("-g {} -w {} -e {}", target.name("group"), target.name("workspace"), target.name("experiment"))
}
