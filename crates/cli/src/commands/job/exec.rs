//! `corro job exec`: runs a command in the environment of a running job. Finds the node and logs in over SSH as the cluster's administrator; the node's
//! agent puts the command into the job's environment.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::ops::{JobsListRemoteLogin, JobsProcesses};

use crate::commands::job::JobNameArgs;
use crate::error::CliError;
use crate::node_ssh::connection::{self, JobExecTarget, Login};
use crate::node_ssh::{admin_user_name, choose_node, cluster_of_job, credentials};
use crate::resource::args::ResourceNames;
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
    /// Password of the cluster's administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// Private key of the cluster's administrator [default: ~/.ssh/id_rsa]
    #[arg(long, short = 'k', value_name = "FILE")]
    ssh_private_key: Option<PathBuf>,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(args: ExecArgs) -> Result<ExitCode, CliError> {
    let target = args.job.target()?;
    let session = Session::open(&GlobalArgs::default())?;
    let client = session.client()?;
    let logins = client.list::<JobsListRemoteLogin, _>(&target.values(), &[]).await;
    let logins = logins.map_err(|error| target.request_error(error))?;
    // Fails if the job does not run.
    let processes = client.get::<JobsProcesses>(&target.values()).await.map_err(|error| target.request_error(error))?;
    let wanted = match args.rank {
        Some(rank) => Some(node_of_rank(rank, &processes)?),
        None => args.node.or_else(|| processes.nodes.first().map(|node| node.node_id.to_string())),
    };
    let node = choose_node(logins, wanted.as_deref())?;
    let user = admin_user_name(client, &cluster_of_job(client, &target).await?).await?;
    let credentials = credentials(args.password, args.ssh_private_key)?;
    let job = [target.name("workspace"), target.name("experiment"), target.name("job")].join("/");
    let exec_target = JobExecTarget { job, rank: args.rank, with_secrets: args.with_secrets };
    let connection = connection::connect(Login { user, node, credentials }).await?;
    connection.exec_in_job(&exec_target, &args.command).await
}

fn node_of_rank(rank: usize, processes: &JobProcesses) -> Result<String, CliError> {
    let has = |node: &&NodeProcesses| node.processes.iter().any(|one| one.rank == Some(rank));
    let found = processes.nodes.iter().find(has).map(|node| node.node_id.to_string());
    found.ok_or_else(|| {
        CliError::new(format!("the job has no rank {rank} that runs now"))
            .hint("see the ranks with 'corro job top NAME --once'")
    })
}
