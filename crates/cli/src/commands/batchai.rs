//! `corro batchai`: hands over to the group of commands for each kind of resource.

use clap::{Args, Subcommand};

use super::{cluster, experiment, job, workspace};
use crate::failure::Failure;
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
    /// Experiments: groups of jobs that are looked at together
    #[command(subcommand)]
    Experiment(experiment::ExperimentCommand),
    /// Clusters: nodes that run jobs, and that grow and shrink
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Jobs: training runs described by a job.json file
    #[command(subcommand)]
    Job(job::JobCommand),
}

pub async fn run(args: BatchaiArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    match args.command {
        BatchaiCommand::Workspace(command) => workspace::run(&session, command).await,
        BatchaiCommand::Experiment(command) => experiment::run(&session, command).await,
        BatchaiCommand::Cluster(command) => cluster::run(&session, command).await,
        BatchaiCommand::Job(command) => job::run(&session, command).await,
    }
}
