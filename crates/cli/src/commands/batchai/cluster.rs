//! `corro batchai cluster`: show, list, resize, scale and delete clusters.

mod create;
mod files;
pub mod spec;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::ApiError;
use corro_model::batchai::{
    AutoScaleSettings, Cluster, ClusterUpdateParameters, ClusterUpdateProperties, DeallocationOption,
    ManualScaleSettings, RemoteLoginInformation, ScaleSettings,
};
use corro_model::ops::{
    ClustersDelete, ClustersGet, ClustersList, ClustersListRemoteLogin, ClustersUpdate, JobsListAll, NoBody,
};
use corro_model::validate;

use crate::commands::batchai::node::{self, NodeParent};
use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::resource::actions::{self, EndAction, Resource};
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection, WorkspaceArgs, with_parent};
use crate::resource::resource_ref::{CLUSTER_FLAG, NAME_FLAG, NameArg, ResourceRef};
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Create a cluster. Its nodes start in the background
    #[command(
        after_help = "Examples:\n  corro batchai cluster create -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --vm-size Standard_NC6 --target 4 --generate-ssh-keys\n  corro batchai cluster create -g mygroup -w myspace -n elastic \\\n      --vm-size Standard_D2_v2 --min 0 --max 4"
    )]
    Create(Box<create::CreateArgs>),
    /// Show a cluster: its state, and how many nodes are idle, running or preparing
    #[command(
        after_help = "Example:\n  corro batchai cluster show -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --output table"
    )]
    Show(ResourceSelection<NameArgs>),
    /// List the clusters of a workspace
    List(WorkspaceArgs),
    /// Set the number of nodes of a cluster. 0 releases all nodes
    #[command(
        after_help = "Example:\n  corro batchai cluster resize -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --target 0"
    )]
    Resize(ResizeArgs),
    /// Scale a cluster automatically between a minimum and a maximum number of nodes
    #[command(
        after_help = "Example:\n  corro batchai cluster auto-scale -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --min 0 --max 4"
    )]
    AutoScale(AutoScaleArgs),
    /// Delete a cluster and its nodes
    Delete(EndArgs<NameArgs>),
    /// List the files that the setup task of a cluster wrote
    #[command(subcommand)]
    File(files::ClusterFileCommand),
    /// List the nodes of a cluster, or run a command on one
    #[command(subcommand)]
    Node(node::NodeCommand<ParentArgs>),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the cluster
    #[arg(long, short = 'n', value_name = "CLUSTER")]
    name: Option<String>,
}

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("cluster", NAME_FLAG, self.name.as_deref()))
    }
}

/// Arguments that name a cluster, as the parent of nodes and files.
#[derive(Args, Debug)]
pub struct ParentArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the cluster
    #[arg(long, short = 'c', value_name = "CLUSTER")]
    cluster: Option<String>,
}

impl ResourceNames for ParentArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("cluster", CLUSTER_FLAG, self.cluster.as_deref()))
    }
}

impl NodeParent for ParentArgs {
    async fn logins(client: &Client, target: &ResourceRef) -> Result<Vec<RemoteLoginInformation>, CliError> {
        let logins = client.list::<ClustersListRemoteLogin, _>(&target.values(), &[]).await;
        logins.map_err(|error| target.request_error(error))
    }

    async fn cluster(_: &Client, target: &ResourceRef) -> Result<ResourceRef, CliError> {
        Ok(target.clone())
    }
}

#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    cluster: ResourceSelection<NameArgs>,
    /// Number of nodes. A job that loses a node goes back to the queue
    #[arg(long, short = 't', value_name = "N", required = true, allow_negative_numbers = true)]
    target: i32,
}

#[derive(Args, Debug)]
pub struct AutoScaleArgs {
    #[command(flatten)]
    cluster: ResourceSelection<NameArgs>,
    /// Minimum number of nodes, even without jobs
    #[arg(long, value_name = "N", required = true, allow_negative_numbers = true)]
    min: i32,
    /// Maximum number of nodes
    #[arg(long, value_name = "N", required = true, allow_negative_numbers = true)]
    max: i32,
}

/// Maximum number of jobs named in the warning before a cluster is deleted.
const MAX_NAMED_JOBS: usize = 5;

/// Clusters as a kind of resource.
pub struct Clusters;

impl Resource for Clusters {
    type Item = Cluster;
    type Get = ClustersGet;
    type List = ClustersList;
    const SHAPE: Shape = Shape::Cluster;
    const TABLE: TableKind = TableKind::Cluster;

    async fn deletion_warnings(client: &Client, target: &ResourceRef) -> Vec<String> {
        let Ok(cluster) = client.get::<ClustersGet>(&target.values()).await else { return Vec::new() };
        let query = [("cluster", cluster.id.as_str()), ("state", "queued,running,terminating")];
        let Ok(jobs) = client.call::<JobsListAll>(&[], &query, &NoBody {}).await else { return Vec::new() };
        let (running, queued) = (jobs.counts.running + jobs.counts.terminating, jobs.counts.queued);
        let mut losses = Vec::new();
        if running + queued > 0 {
            let named: Vec<String> =
                jobs.value.iter().take(MAX_NAMED_JOBS).map(|job| format!("\"{}\"", job.name)).collect();
            let more = if jobs.value.len() > MAX_NAMED_JOBS { ", …" } else { "" };
            losses.push(format!(
                "The cluster \"{}\" has jobs that will fail: {running} running, {queued} queued ({}{more}).",
                cluster.name,
                named.join(", ")
            ));
        }
        losses
    }
}

pub async fn run(session: &Session, command: ClusterCommand) -> Result<(), CliError> {
    let deleting = EndAction { progress_text: "Deleting", is_deletion: true, warning: None };
    match command {
        ClusterCommand::Create(args) => create::create(session, *args).await,
        ClusterCommand::Show(args) => actions::show::<Clusters>(session, &args).await,
        ClusterCommand::List(args) => actions::list::<Clusters>(session, &args.target()?).await,
        ClusterCommand::Resize(args) => scale(session, &args.cluster, manual(args.target)).await,
        ClusterCommand::AutoScale(args) => scale(session, &args.cluster, automatic(args.min, args.max, 0)).await,
        ClusterCommand::Delete(args) => actions::end::<Clusters, ClustersDelete>(session, &args, deleting).await,
        ClusterCommand::File(command) => files::run(session, command).await,
        ClusterCommand::Node(command) => node::run(session, command).await,
    }
}

async fn scale(
    session: &Session,
    chosen: &ResourceSelection<NameArgs>,
    settings: ScaleSettings,
) -> Result<(), CliError> {
    let targets = actions::targets::<Clusters>(chosen)?;
    validate::check_scale(&settings).map_err(in_options)?;
    let parameters = ClusterUpdateParameters { properties: ClusterUpdateProperties { scale_settings: Some(settings) } };
    let mut scaled = Vec::new();
    for target in &targets {
        let cluster = session.client()?.call::<ClustersUpdate>(&target.values(), &[], &parameters).await;
        scaled.push(cluster.map_err(|error| target.request_error(error))?);
    }
    actions::print_each::<Clusters>(session, &scaled, chosen)
}

/// Error of a scale, with the options that set its fields.
pub fn in_options(error: ApiError) -> CliError {
    let options = [
        ("minimumNodeCount", "--min"),
        ("maximumNodeCount", "--max"),
        ("initialNodeCount", "--target"),
        ("targetNodeCount", "--target"),
    ];
    let target = error.target.clone();
    CliError::from(error).with_option_names(target.as_deref(), &options)
}

/// A fixed number of nodes.
pub fn manual(target_node_count: i32) -> ScaleSettings {
    let manual = ManualScaleSettings { target_node_count, node_deallocation_option: DeallocationOption::default() };
    ScaleSettings { manual: Some(manual), auto_scale: None }
}

/// A number of nodes that follows the jobs, within bounds.
pub fn automatic(minimum_node_count: i32, maximum_node_count: i32, initial_node_count: i32) -> ScaleSettings {
    let auto_scale = AutoScaleSettings { minimum_node_count, maximum_node_count, initial_node_count };
    ScaleSettings { manual: None, auto_scale: Some(auto_scale) }
}
