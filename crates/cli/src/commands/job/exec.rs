//! `corro job exec`: a command beside the processes of a running job. Finds the node, logs in as the cluster's administrator
//! and says beside whom; the node's agent does the rest. The connection is in `node::ssh`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use corro_client::Client;
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::ops::{ClustersGet, JobsListRemoteLogin, JobsProcesses};

use crate::commands::batchai::job::cluster_of;
use crate::commands::batchai::node::ssh::{self, Beside, Login};
use crate::commands::batchai::node::{choose, proof};
use crate::commands::job::JobNameArgs;
use crate::commands::resource_args::Names;
use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct ExecArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Beside this rank, on its node and with its variables
    #[arg(long, value_name = "RANK", conflicts_with = "node")]
    rank: Option<usize>,
    /// On this node of the job [default: the first, which is the master]
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Let the command see the job's secrets too
    #[arg(long)]
    with_secrets: bool,
    /// Password of the cluster's administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// Private key of the cluster's administrator [default: ~/.ssh/id_rsa]
    #[arg(long, short = 'k', value_name = "FILE")]
    ssh_private_key: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(args: ExecArgs) -> Result<ExitCode, Failure> {
    let target = args.job.target()?;
    let session = Session::open(&GlobalArgs::default())?;
    let client = session.client()?;
    let logins = client.list::<JobsListRemoteLogin, _>(&target.values(), &[]).await;
    let logins = logins.map_err(|error| target.failure(error))?;
    // Also says so when the job does not run.
    let processes = client.get::<JobsProcesses>(&target.values()).await.map_err(|error| target.failure(error))?;
    let wanted = match args.rank {
        Some(rank) => Some(node_of(rank, &processes)?),
        None => args.node.or_else(|| processes.nodes.first().map(|node| node.node_id.to_string())),
    };
    let node = choose(logins, wanted.as_deref())?;
    let user = administrator(client, &target).await?;
    let proof = proof(args.password, args.ssh_private_key)?;
    let job = [target.name("workspace"), target.name("experiment"), target.name("job")].join("/");
    let beside = Beside { job, rank: args.rank, with_secrets: args.with_secrets };
    let connection = ssh::connect(Login { user, node, proof }).await?;
    connection.exec_beside(&beside, &args.command).await
}

fn node_of(rank: usize, processes: &JobProcesses) -> Result<String, Failure> {
    let has = |node: &&NodeProcesses| node.processes.iter().any(|one| one.rank == Some(rank));
    let found = processes.nodes.iter().find(has).map(|node| node.node_id.to_string());
    found.ok_or_else(|| {
        Failure::new(format!("the job has no rank {rank} that runs now"))
            .hint("see the ranks with 'corro job top NAME --once'")
    })
}

async fn administrator(client: &Client, target: &Target) -> Result<String, Failure> {
    let cluster = cluster_of(client, target).await?;
    let found = client.get::<ClustersGet>(&cluster.values()).await.map_err(|error| cluster.failure(error))?;
    Ok(found.properties.spec.user_account_settings.admin_user_name)
}
