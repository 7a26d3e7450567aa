//! `corro batchai cluster node` and `corro batchai job node`: list nodes with their SSH endpoints, and run commands on them. The two differ only in
//! where the nodes come from, which a [`NodeParent`] defines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::batchai::RemoteLoginInformation;

use crate::error::CliError;
use crate::node_ssh::connection::{self, Login};
use crate::node_ssh::port_forward::{self, PortForward};
use crate::node_ssh::{admin_user_name, choose_node, credentials};
use crate::output::{Shape, TableKind};
use crate::resource::args::ResourceNames;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum NodeCommand<P: Args> {
    /// List nodes with the address and port of their SSH servers
    List(P),
    /// Run a command on a node over SSH, or forward ports to it
    #[command(
        after_help = "You log in as the cluster's administrator. Forwarded ports listen on the loopback address of\n\
                      this machine only. Without --exec, ports are forwarded until Ctrl-C.\n\n\
                      Examples, with -g, -w and the cluster or job left out:\n  \
                      node exec ... --exec 'nvidia-smi'\n  node exec ... -L 6006:localhost:6006"
    )]
    Exec(ExecArgs<P>),
}

#[derive(Args, Debug)]
pub struct ExecArgs<P: Args> {
    #[command(flatten)]
    parent: P,
    /// Command to run with bash. Its exit code becomes the exit code of this command
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Id of the node [default: the first node in the list]
    #[arg(long, short = 'n', value_name = "ID")]
    node_id: Option<String>,
    /// Port to forward, as LOCALPORT:HOST:REMOTEPORT. Local port 0 picks a free port. Can be repeated
    #[arg(long, short = 'L', value_name = "ADDRESS", value_parser = port_forward::parse)]
    address: Vec<PortForward>,
    /// Password of the cluster's administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// Private key of the cluster's administrator [default: ~/.ssh/id_rsa]
    #[arg(long, short = 'k', value_name = "FILE")]
    ssh_private_key: Option<PathBuf>,
}

/// A resource that has nodes: a cluster or a job.
pub trait NodeParent: ResourceNames {
    /// SSH endpoints of its nodes.
    async fn logins(client: &Client, target: &ResourceRef) -> Result<Vec<RemoteLoginInformation>, CliError>;
    /// The cluster of the nodes, whose administrator logs in.
    async fn cluster(client: &Client, target: &ResourceRef) -> Result<ResourceRef, CliError>;
}

pub async fn run<P: NodeParent>(session: &Session, command: NodeCommand<P>) -> Result<(), CliError> {
    match command {
        NodeCommand::List(parent) => {
            let logins = P::logins(session.client()?, &parent.target()?).await?;
            session.print(Shape::RemoteLogin, Some(TableKind::RemoteLogin), &logins)
        }
        NodeCommand::Exec(args) => exec(session, args).await,
    }
}

async fn exec<P: NodeParent>(session: &Session, args: ExecArgs<P>) -> Result<(), CliError> {
    let target = args.parent.target()?;
    if args.exec.is_none() && args.address.is_empty() {
        return Ok(());
    }
    let client = session.client()?;
    let node = choose_node(P::logins(client, &target).await?, args.node_id.as_deref())?;
    let cluster = P::cluster(client, &target).await?;
    let user = admin_user_name(client, &cluster).await?;
    let credentials = credentials(args.password, args.ssh_private_key)?;
    let connection = connection::connect(Login { user, node, credentials }).await?;
    let forwards = port_forward::listen(&connection, &args.address).await?;
    match &args.exec {
        Some(command) => connection.exec(command).await,
        None => forwards.run_until_interrupted().await,
    }
}
