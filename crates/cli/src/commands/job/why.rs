//! `corro job why`: prints the server's explanation of why a job waits, runs, failed or ended.

use corro_model::batchai::ExecutionState;
use corro_model::ops::JobsWhy;

use crate::error::CliError;
use crate::job_notes::experiment_arguments;
use crate::output::escape_controls;
use crate::resource::short_names::RecentJobArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

pub async fn run(args: RecentJobArgs) -> Result<(), CliError> {
    let session = Session::open(&GlobalArgs::default())?;
    let target = args.find(&session).await?;
    let explanation = session.client()?.get::<JobsWhy>(&target.values()).await;
    let explanation = explanation.map_err(|error| target.show_error(error))?;
    for line in explanation.lines() {
        print(escape_controls(&line));
    }
    if explanation.state == ExecutionState::Running {
        let job = target.name("job");
        print(format_args!("See what its processes use with 'corro job top {job} {}'.", experiment_arguments(&target)));
    }
    Ok(())
}
