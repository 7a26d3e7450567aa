//! `corro job wait`: waits until a job has ended, and exits with its exit code.

use clap::Args;

use crate::commands::batchai::job::wait;
use crate::error::CliError;
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Seconds between two checks [default: 1 at first, increasing to 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: WaitArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    wait::wait(&session, &target, args.interval).await
}
