//! `corro batchai`: hands over to the group of commands for each kind of resource.

pub mod admin_account;
pub mod auto_storage;
pub mod cluster;
pub mod experiment;
pub mod file_server;
pub mod job;
pub mod list_usages;
pub mod node;
pub mod volumes;
pub mod workspace;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct BatchaiArgs {
    #[command(subcommand)]
    command: BatchaiCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum BatchaiCommand {
    /// Manage workspaces, which hold clusters and experiments
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// Manage experiments, which group related jobs
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Manage clusters: groups of nodes that run jobs
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Submit and manage jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Manage file servers, which clusters and jobs can mount
    #[command(subcommand)]
    FileServer(file_server::FileServerCommand),
    /// Show the quotas of a location and their usage
    ListUsages(list_usages::UsagesArgs),
}

pub async fn run(args: BatchaiArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    match args.command {
        BatchaiCommand::Workspace(command) => workspace::run(&session, command).await,
        BatchaiCommand::Experiment(command) => experiment::run(&session, command).await,
        BatchaiCommand::Cluster(command) => cluster::run(&session, command).await,
        BatchaiCommand::Job(command) => job::run(&session, command).await,
        BatchaiCommand::FileServer(command) => file_server::run(&session, command).await,
        BatchaiCommand::ListUsages(args) => list_usages::run(&session, args).await,
    }
}
