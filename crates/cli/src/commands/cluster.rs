//! `corro cluster`: the short commands for clusters, which find names themselves and print text. `corro batchai cluster` has all options of the service.

mod create;
mod delete;
mod list;
mod resize;
mod show;
mod text;

use clap::{Args, Subcommand};

use crate::error::CliError;

#[derive(Args, Debug)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    /// List clusters: their nodes, VM size and scaling
    #[command(after_help = "Examples:\n  corro cluster list\n  corro cluster list --all -o json")]
    List(list::ListArgs),
    /// Show a cluster and what its nodes do
    #[command(after_help = "Examples:\n  corro cluster show\n  corro cluster show nc6cluster")]
    Show(show::ShowArgs),
    /// Create a cluster. Its nodes start in the background
    ///
    /// Without --nodes it follows its jobs: it has no nodes while none needs them. The group and the workspace are created if they do
    /// not exist.
    #[command(
        after_help = "Examples:\n  corro cluster create small --nodes 4\n  corro cluster create gpus --gpus 2 --max 8\n  corro cluster create nc6cluster --nodes 4 --vm-size Standard_NC6"
    )]
    Create(create::CreateArgs),
    /// Change the number of nodes of a cluster. 0 releases all nodes
    #[command(
        after_help = "Examples:\n  corro cluster resize small --nodes 8\n  corro cluster resize small --min 0 --max 8"
    )]
    Resize(resize::ResizeArgs),
    /// Delete a cluster and its nodes
    #[command(after_help = "Example:\n  corro cluster delete small")]
    Delete(delete::DeleteArgs),
}

pub async fn run(args: ClusterArgs) -> Result<(), CliError> {
    match args.command {
        ClusterCommand::List(args) => list::run(args).await,
        ClusterCommand::Show(args) => show::run(args).await,
        ClusterCommand::Create(args) => create::run(args).await,
        ClusterCommand::Resize(args) => resize::run(args).await,
        ClusterCommand::Delete(args) => delete::run(args).await,
    }
}
