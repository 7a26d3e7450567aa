//! `corro batchai cluster node` and `corro batchai job node`: how to reach nodes, and running commands on them. Both are
//! alike but for where the list comes from, which a `NodeParent` says.

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::batchai::RemoteLoginInformation;

use super::names::Names;
use super::target::Target;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum NodeCommand<P: Args> {
    /// List the nodes with the address and port of their SSH servers
    List(P),
}

/// What has nodes: a cluster or a job.
pub trait NodeParent: Names {
    async fn logins(client: &Client, target: &Target) -> Result<Vec<RemoteLoginInformation>, Failure>;
}

pub async fn run<P: NodeParent>(session: &Session, command: NodeCommand<P>) -> Result<(), Failure> {
    match command {
        NodeCommand::List(parent) => {
            let logins = P::logins(session.client()?, &parent.target()?).await?;
            session.print(Shape::RemoteLogin, Some(TableKind::RemoteLogin), &logins)
        }
    }
}
