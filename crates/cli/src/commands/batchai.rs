//! `corro batchai`: hands over to the group of commands for each kind of resource.

pub mod admin_account;
pub mod auto_storage;
pub mod cluster;
pub mod config_file;
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
    /// Workspaces: the top-level collections that hold clusters and experiments
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// Experiments: groups of related jobs
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Clusters: groups of nodes that run jobs
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Jobs: training runs described by a job.json file
    #[command(subcommand)]
    Job(job::JobCommand),
    /// File servers: disks that clusters and jobs mount
    #[command(subcommand)]
    FileServer(file_server::FileServerCommand),
    /// Show the quotas of a region and their usage
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
