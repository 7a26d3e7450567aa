//! SSH connection to a node of a running job, with the job's environment as target: what `job exec` and `job shell` begin with. It goes through the server
//! if that is possible, so that this machine need not reach the node; the node checks the credentials either way.

use std::path::PathBuf;

use clap::Args;
use corro_client::{Client, ClientError};
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::node::TunnelTarget;
use corro_model::ops::{JobsListRemoteLogin, JobsProcesses};
use tokio::io::DuplexStream;

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
    let rank = choice.rank;
    let node = choose_node(logins, node_of_choice(choice, &processes)?.as_deref())?;
    let user = admin_user_name(client, &cluster_of_job(client, job).await?).await?;
    let credentials = credentials(admin.password, admin.ssh_private_key)?;
    let path = [job.name("workspace"), job.name("experiment"), job.name("job")].join("/");
    let target = JobExecTarget { job: path, rank, with_secrets };
    let stream = stream_through_server(client, job, node.node_id.as_str()).await?;
    let login = Login { user, node, credentials };
    let connection = match stream {
        Some(stream) => connection::connect_over(login, stream).await?,
        None => connection::connect(login).await?,
    };
    Ok((connection, target))
}

/// A stream to the SSH server of a node. `None` if only a direct connection is possible: the user may not open tunnels, or the server or the node is of an
/// earlier version.
async fn stream_through_server(
    client: &Client,
    job: &ResourceRef,
    node: &str,
) -> Result<Option<DuplexStream>, CliError> {
    match client.open_tunnel(&job.values(), TunnelTarget::Ssh, Some(node)).await {
        Ok(tunnel) => Ok(Some(tunnel.into_stream())),
        Err(error) if is_not_offered(&error) => Ok(None),
        Err(error) => Err(job.request_error(error)),
    }
}

fn is_not_offered(error: &ClientError) -> bool {
    let codes = ["AuthorizationFailed", "AgentTooOld", "InvalidResourceType", "NoWebSocket"];
    error.api().is_some_and(|error| codes.contains(&error.code.as_str()))
}

/// Id of the chosen node; without a choice that of the first node, if the job has nodes.
pub fn node_of_choice(choice: NodeChoice, processes: &JobProcesses) -> Result<Option<String>, CliError> {
    match choice.rank {
        Some(rank) => node_of_rank(rank, processes).map(Some),
        None => Ok(choice.node.or_else(|| processes.nodes.first().map(|node| node.node_id.to_string()))),
    }
}

fn node_of_rank(rank: usize, processes: &JobProcesses) -> Result<String, CliError> {
    let has = |node: &&NodeProcesses| node.processes.iter().any(|one| one.rank == Some(rank));
    let found = processes.nodes.iter().find(has).map(|node| node.node_id.to_string());
    found.ok_or_else(|| {
        CliError::new(format!("the job has no rank {rank} that runs now"))
            .hint("see the ranks with 'corro job top NAME --once'")
    })
}
