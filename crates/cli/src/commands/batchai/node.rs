//! `corro batchai cluster node` and `corro batchai job node`: how to reach nodes, and running commands on them. Both are
//! alike but for where the list comes from, which a `NodeParent` says. The connection itself is in `ssh`.

mod forward;
mod known;
pub mod ssh;
pub mod terminal;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::Secret;
use corro_model::batchai::RemoteLoginInformation;
use corro_model::ops::ClustersGet;

use crate::commands::resource_args::Names;
use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::session::{Session, home_dir};
use forward::Forwarding;
use ssh::{Login, Proof};

#[derive(Subcommand, Debug)]
pub enum NodeCommand<P: Args> {
    /// List the nodes with the address and port of their SSH servers
    List(P),
    /// Run a command on a node, or forward ports to it, over SSH
    #[command(
        after_help = "The cluster's administrator logs in. Forwarded ports are open on this machine's loopback\n\
                      address only. Without --exec ports are forwarded until Ctrl-C.\n\n\
                      Examples, after -g, -w and the name of a cluster or job:\n  \
                      node exec ... --exec 'nvidia-smi'\n  node exec ... -L 6006:localhost:6006"
    )]
    Exec(ExecArgs<P>),
}

#[derive(Args, Debug)]
pub struct ExecArgs<P: Args> {
    #[command(flatten)]
    parent: P,
    /// Command line to run with bash; its exit code becomes ours
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Id of the node [default: the first of the list]
    #[arg(long, short = 'n', value_name = "ID")]
    node_id: Option<String>,
    /// Port to forward, as LOCALPORT:HOST:REMOTEPORT; may be repeated, and a local port of 0 takes a free one
    #[arg(long, short = 'L', value_name = "ADDRESS", value_parser = forward::parse)]
    address: Vec<Forwarding>,
    /// Password of the cluster's administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// Private key of the cluster's administrator [default: ~/.ssh/id_rsa]
    #[arg(long, short = 'k', value_name = "FILE")]
    ssh_private_key: Option<PathBuf>,
}

/// What has nodes: a cluster or a job.
pub trait NodeParent: Names {
    async fn logins(client: &Client, target: &Target) -> Result<Vec<RemoteLoginInformation>, Failure>;
    /// The cluster whose administrator may log in.
    async fn cluster(client: &Client, target: &Target) -> Result<Target, Failure>;
}

pub async fn run<P: NodeParent>(session: &Session, command: NodeCommand<P>) -> Result<(), Failure> {
    match command {
        NodeCommand::List(parent) => {
            let logins = P::logins(session.client()?, &parent.target()?).await?;
            session.print(Shape::RemoteLogin, Some(TableKind::RemoteLogin), &logins)
        }
        NodeCommand::Exec(args) => exec(session, args).await,
    }
}

async fn exec<P: NodeParent>(session: &Session, args: ExecArgs<P>) -> Result<(), Failure> {
    let target = args.parent.target()?;
    if args.exec.is_none() && args.address.is_empty() {
        return Ok(());
    }
    let client = session.client()?;
    let node = choose(P::logins(client, &target).await?, args.node_id.as_deref())?;
    let cluster = P::cluster(client, &target).await?;
    let found = client.get::<ClustersGet>(&cluster.values()).await.map_err(|error| cluster.failure(error))?;
    let user = found.properties.spec.user_account_settings.admin_user_name;
    let proof = proof(args.password, args.ssh_private_key)?;
    let connection = ssh::connect(Login { user, node, proof }).await?;
    let forwards = forward::listen(&connection, &args.address).await?;
    match &args.exec {
        Some(command) => connection.exec(command).await,
        None => forwards.until_interrupted().await,
    }
}

pub fn choose(nodes: Vec<RemoteLoginInformation>, wanted: Option<&str>) -> Result<RemoteLoginInformation, Failure> {
    let found = nodes.into_iter().find(|node| wanted.is_none_or(|id| node.node_id.as_str() == id));
    found.ok_or_else(|| match wanted {
        Some(id) => Failure::new(format!("Cannot find a node with id={id}"))
            .hint("see the ids with 'node list' in place of 'node exec'"),
        None => Failure::new("No nodes available in the cluster"),
    })
}

/// A key that is not named is used only where there is nothing else.
pub fn proof(password: Option<String>, key: Option<PathBuf>) -> Result<Proof, Failure> {
    let key = match (key, &password) {
        (Some(key), _) => Some(key),
        (None, Some(_)) => None,
        (None, None) => Some(home_dir()?.join(".ssh").join("id_rsa")),
    };
    Ok(Proof { key, password: password.map(Secret::new) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_node_is_taken_unless_one_is_named() {
        let nodes = || -> Vec<RemoteLoginInformation> {
            serde_json::from_value(json!([{"nodeId": "tvm-1_1-20180718t174802z-p", "ipAddress": "127.0.0.1", "port": 1},
                                          {"nodeId": "tvm-1_2-20180718t174802z-p", "ipAddress": "127.0.0.1", "port": 2}]))
            .expect("literals")
        };
        assert_eq!(choose(nodes(), None).expect("there is one").port, 1);
        assert_eq!(choose(nodes(), Some("tvm-1_2-20180718t174802z-p")).expect("there is one").port, 2);
        assert_eq!(choose(nodes(), Some("x")).expect_err("none").message, "Cannot find a node with id=x");
        assert_eq!(choose(vec![], None).expect_err("none").message, "No nodes available in the cluster");
    }
}
