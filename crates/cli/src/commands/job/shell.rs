//! `corro job shell`: an interactive shell in the environment of a running job, or of one of its ranks. `job exec` with the shell as its command.

use std::process::ExitCode;

use clap::Args;

use crate::error::CliError;
use crate::node_ssh::job_login::{self, AdminCredentialArgs, NodeChoice};
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct ShellArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Open the shell on the node of this rank, with the rank's variables
    #[arg(long, value_name = "RANK", conflicts_with = "node")]
    rank: Option<usize>,
    /// Open the shell on this node of the job [default: the first node, which is the master]
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Give the job's secrets to the shell too
    #[arg(long)]
    with_secrets: bool,
    #[command(flatten)]
    admin: AdminCredentialArgs,
}

/// The shell that the job's variables name, else bash, else sh, which every image has.
const START_SHELL: &str = r#"for shell in "${SHELL:-bash}" bash sh; do command -v "$shell" >/dev/null 2>&1 && exec "$shell" -i; done; exit 127"#;

pub async fn run(args: ShellArgs) -> Result<ExitCode, CliError> {
    let session = Session::open(&GlobalArgs::default())?;
    let target = args.job.find(&session).await?;
    let choice = NodeChoice { rank: args.rank, node: args.node };
    let (connection, exec_target) =
        job_login::connect(&session, &target, choice, args.admin, args.with_secrets).await?;
    let command = ["sh", "-c", START_SHELL].map(str::to_owned);
    connection.exec_in_job(&exec_target, &command).await
}
