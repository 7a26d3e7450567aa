//! SSH connection to a node of a running job, with the job's environment as target: what `job exec`, `job shell` and `notebook` begin with.

use std::path::PathBuf;

use clap::Args;
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::ops::{JobsListRemoteLogin, JobsProcesses};

use super::connection::{self, Connection, JobExecTarget, Login};
use super::{admin_user_name, choose_node, cluster_of_job, credentials};
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;

/// Credentials of the cluster's administrator.
#[derive(Args, Clone, Debug, Default)]
pub struct AdminCredentialArgs {
    /// Password of the cluster's administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    pub password: Option<String>,
    /// Private key of the cluster's administrator [default: ~/.ssh/id_rsa]
    #[arg(long, short = 'k', value_name = "FILE")]
    pub ssh_private_key: Option<PathBuf>,
}

/// The node of a job to log in to.
#[derive(Clone, Debug, Default)]
pub struct NodeChoice {
    /// The node of this rank, with the rank's variables.
    pub rank: Option<usize>,
    /// The node with this id. Without both, the first node.
    pub node: Option<String>,
}

/// Logs in to a node of a job. Fails if the job does not run.
pub async fn connect(
    session: &Session,
    job: &ResourceRef,
    choice: NodeChoice,
    admin: AdminCredentialArgs,
    with_secrets: bool,
) -> Result<(Connection, JobExecTarget), CliError> {
    let client = session.client()?;
    let logins = client.list::<JobsListRemoteLogin, _>(&job.values(), &[]).await;
    let logins = logins.map_err(|error| job.request_error(error))?;
    let processes = client.get::<JobsProcesses>(&job.values()).await.map_err(|error| job.request_error(error))?;
    let wanted = match choice.rank {
        Some(rank) => Some(node_of_rank(rank, &processes)?),
        None => choice.node.or_else(|| processes.nodes.first().map(|node| node.node_id.to_string())),
    };
    let node = choose_node(logins, wanted.as_deref())?;
    let user = admin_user_name(client, &cluster_of_job(client, job).await?).await?;
    let credentials = credentials(admin.password, admin.ssh_private_key)?;
    let path = [job.name("workspace"), job.name("experiment"), job.name("job")].join("/");
    let target = JobExecTarget { job: path, rank: choice.rank, with_secrets };
    Ok((connection::connect(Login { user, node, credentials }).await?, target))
}

fn node_of_rank(rank: usize, processes: &JobProcesses) -> Result<String, CliError> {
    let has = |node: &&NodeProcesses| node.processes.iter().any(|one| one.rank == Some(rank));
    let found = processes.nodes.iter().find(has).map(|node| node.node_id.to_string());
    found.ok_or_else(|| {
        CliError::new(format!("the job has no rank {rank} that runs now"))
            .hint("see the ranks with 'corro job top NAME --once'")
    })
}
