//! `corro job exec`: runs a command in the environment of a running job. Finds the node and logs in over SSH as the cluster's administrator; the node's
//! agent puts the command into the job's environment.

use std::process::ExitCode;

use clap::Args;

use crate::error::CliError;
use crate::node_ssh::job_login::{self, AdminCredentialArgs, NodeChoice};
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct ExecArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Run the command on the node of this rank, with the rank's variables
    #[arg(long, value_name = "RANK", conflicts_with = "node")]
    rank: Option<usize>,
    /// Run the command on this node of the job [default: the first node, which is the master]
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Give the job's secrets to the command too
    #[arg(long)]
    with_secrets: bool,
    #[command(flatten)]
    admin: AdminCredentialArgs,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(args: ExecArgs) -> Result<ExitCode, CliError> {
    let session = Session::open(&GlobalArgs::default())?;
    let target = args.job.find(&session).await?;
    let choice = NodeChoice { rank: args.rank, node: args.node };
    let (connection, exec_target) =
        job_login::connect(&session, &target, choice, args.admin, args.with_secrets).await?;
    connection.exec_in_job(&exec_target, &args.command).await
}
