//! `corro batchai cluster`.

mod admin;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_model::batchai::{
    ClusterCreateParameters, ClusterUpdateParameters, ClusterUpdateProperties, DeallocationOption, ManualScaleSettings,
    ScaleSettings, VmPriority,
};
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{ClustersCreate, ClustersDelete, ClustersGet, ClustersList, ClustersUpdate, NoBody};
use corro_model::validate;

use super::cluster_spec::{self, ClusterFile, Wanted};
use super::config_file;
use super::mounts::{self, MountArgs};
use super::target::{GROUP_FLAG, NAME_FLAG, Name, Target, WORKSPACE_FLAG};
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Make a cluster; its nodes come up while you go on
    #[command(
        after_help = "Examples:\n  corro batchai cluster create -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --vm-size Standard_NC6 --target 4 --generate-ssh-keys\n  corro batchai cluster create -g mygroup -w myspace -n elastic \\\n      --vm-size Standard_D2_v2 --min 0 --max 4"
    )]
    Create(Box<CreateArgs>),
    /// Show a cluster: its state and how many nodes are idle, running, preparing
    #[command(
        after_help = "Example:\n  corro batchai cluster show -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --output table"
    )]
    Show(ShowArgs),
    /// List the clusters of a workspace
    List(ListArgs),
    /// Give a cluster a fixed number of nodes; 0 frees them all
    #[command(
        after_help = "Example:\n  corro batchai cluster resize -g batchai.horovod -w batchaidev \\\n      -n nc6cluster --target 0"
    )]
    Resize(ResizeArgs),
    /// Delete a cluster and its nodes
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
    /// Name of the cluster
    #[arg(long, short = 'n', value_name = "CLUSTER")]
    name: Option<String>,
}

impl NameArgs {
    fn names(&self) -> [Name<'_>; 3] {
        [
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
            ("cluster", NAME_FLAG, self.name.as_deref()),
        ]
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// JSON file that describes the cluster; arguments win over it
    #[arg(long, short = 'f', value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Size of each node, such as Standard_NC6 (6 cores, 1 GPU)
    #[arg(long, short = 's', value_name = "SIZE", help_heading = "Nodes")]
    vm_size: Option<String>,
    /// dedicated, or lowpriority for nodes that may be taken away [default: dedicated]
    #[arg(long, value_name = "PRIORITY", value_parser = vm_priority, help_heading = "Nodes")]
    vm_priority: Option<VmPriority>,
    /// Fixed number of nodes; with --min and --max, the number to start with
    #[arg(long, short = 't', value_name = "N", help_heading = "Nodes")]
    target: Option<i32>,
    /// Fewest nodes of a cluster that follows its jobs
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    min: Option<i32>,
    /// Most nodes of a cluster that follows its jobs
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    max: Option<i32>,
    /// Operating system image: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version
    #[arg(long, short = 'i', value_name = "IMAGE", help_heading = "Nodes")]
    image: Option<String>,
    /// Id of a custom image
    #[arg(long, value_name = "ID", help_heading = "Nodes")]
    custom_image: Option<String>,
    /// Administrator of the nodes [default: your user name]
    #[arg(long, short = 'u', value_name = "NAME", help_heading = "Admin Account")]
    user_name: Option<String>,
    /// Public key of the administrator: text or file [default: ~/.ssh/id_rsa.pub]
    #[arg(long, short = 'k', value_name = "KEY", help_heading = "Admin Account")]
    ssh_key: Option<String>,
    /// Make ~/.ssh/id_rsa and id_rsa.pub when they are missing, and use them
    #[arg(long, help_heading = "Admin Account")]
    generate_ssh_keys: bool,
    /// Password of the administrator
    #[arg(long, short = 'p', value_name = "PASSWORD", help_heading = "Admin Account")]
    password: Option<String>,
    /// Command to run on each new node
    #[arg(long, value_name = "COMMAND", help_heading = "Setup Task")]
    setup_task: Option<String>,
    /// Where its output goes
    #[arg(long, value_name = "PATH", help_heading = "Setup Task")]
    setup_task_output: Option<String>,
    /// Id of a virtual network's subnet; accepted and reported
    #[arg(long, value_name = "ID", help_heading = "Virtual Network")]
    subnet: Option<String>,
    #[command(flatten)]
    mounts: MountArgs,
    #[arg(long, hide = true)]
    use_auto_storage: bool,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Full ids, instead of names
    #[arg(long, num_args = 1.., value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
}

#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    cluster: ShowArgs,
    /// Number of nodes; running jobs that lose nodes are queued again
    #[arg(long, short = 't', value_name = "N", required = true)]
    target: i32,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    cluster: ShowArgs,
    /// Do not wait until the nodes are gone
    #[arg(long)]
    no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(session: &Session, command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Create(args) => create(session, *args).await,
        ClusterCommand::Show(args) => show(session, args).await,
        ClusterCommand::List(args) => list(session, args).await,
        ClusterCommand::Resize(args) => resize(session, args).await,
        ClusterCommand::Delete(args) => delete(session, args).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let target = Target::named(&args.name.names())?;
    let (group, workspace, cluster) = (target.name("group"), target.name("workspace"), target.name("cluster"));
    check_name(NameOf::Cluster, cluster)?;
    if args.use_auto_storage {
        return Err(Failure::new("--use-auto-storage is not supported: it needs blob containers")
            .hint("make an account and a share, then give --storage-account-name and --afs-name"));
    }
    let file = match &args.config_file {
        Some(path) => {
            let (file, unknown) = config_file::read::<ClusterFile>(path, Shape::Cluster)?;
            config_file::warn_about_unknown_fields(path, &unknown);
            file.properties
        }
        None => Default::default(),
    };
    let account = admin::account(&args, file.user_account_settings.clone().unwrap_or_default())?;
    let mut spec = cluster_spec::plan(file, &wanted(&args), account)?;
    validate::check_cluster(&spec)?;

    if session.client()?.find::<ClustersGet>(&target.values()).await?.is_some() {
        return Err(Failure::new(format!(
            "\"{cluster}\" already exists in \"{group}\" resource group under \"{workspace}\" workspace."
        ))
        .hint("choose another name, or change its size with 'corro batchai cluster resize'"));
    }
    let volumes = spec.node_setup.as_mut().and_then(|setup| setup.mount_volumes.take());
    if let Some(volumes) = mounts::fill(session.client()?, volumes, &args.mounts, (group, workspace)).await? {
        spec.node_setup.get_or_insert_default().mount_volumes = Some(volumes);
        validate::check_cluster(&spec)?;
    }
    let spinner = Spinner::start("Creating");
    let parameters = ClusterCreateParameters { properties: spec };
    let made = session.client()?.run::<ClustersCreate>(&target.values(), &parameters).await?;
    drop(spinner);
    session.print(Shape::Cluster, Some(TableKind::Cluster), &made)
}

fn wanted(args: &CreateArgs) -> Wanted {
    Wanted {
        vm_size: args.vm_size.clone(),
        vm_priority: args.vm_priority,
        target: args.target,
        min: args.min,
        max: args.max,
        image: args.image.clone(),
        custom_image: args.custom_image.clone(),
        setup_task: args.setup_task.clone(),
        setup_task_output: args.setup_task_output.clone(),
        subnet: args.subnet.clone(),
    }
}

fn vm_priority(text: &str) -> Result<VmPriority, String> {
    match text.to_ascii_lowercase().as_str() {
        "dedicated" => Ok(VmPriority::Dedicated),
        "lowpriority" => Ok(VmPriority::LowPriority),
        _ => Err("use 'dedicated' or 'lowpriority'".to_owned()),
    }
}

async fn show(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let targets = Target::all::<ClustersGet>(&args.ids, &args.name.names())?;
    let mut found = Vec::new();
    for target in &targets {
        found.push(session.client()?.get::<ClustersGet>(&target.values()).await.map_err(Failure::of_show)?);
    }
    session.print_found(Shape::Cluster, TableKind::Cluster, &found, args.ids.len())
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let workspace = Target::named(&[
        ("group", GROUP_FLAG, args.resource_group.as_deref()),
        ("workspace", WORKSPACE_FLAG, args.workspace.as_deref()),
    ])?;
    let clusters = session.client()?.list::<ClustersList, _>(&workspace.values(), &[]).await?;
    session.print(Shape::Cluster, Some(TableKind::Cluster), &clusters)
}

async fn resize(session: &Session, args: ResizeArgs) -> Result<(), Failure> {
    let targets = Target::all::<ClustersGet>(&args.cluster.ids, &args.cluster.name.names())?;
    let manual =
        ManualScaleSettings { target_node_count: args.target, node_deallocation_option: DeallocationOption::default() };
    let scale_settings = ScaleSettings { manual: Some(manual), auto_scale: None };
    validate::check_scale(&scale_settings)?;
    let parameters =
        ClusterUpdateParameters { properties: ClusterUpdateProperties { scale_settings: Some(scale_settings) } };
    let mut resized = Vec::new();
    for target in &targets {
        resized.push(session.client()?.call::<ClustersUpdate>(&target.values(), &[], &parameters).await?);
    }
    session.print_found(Shape::Cluster, TableKind::Cluster, &resized, args.cluster.ids.len())
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let targets = Target::all::<ClustersGet>(&args.cluster.ids, &args.cluster.name.names())?;
    prompt::confirm(args.yes)?;
    for target in &targets {
        let pending = session.client()?.start::<ClustersDelete>(&target.values(), &NoBody {}).await?;
        if !args.no_wait {
            let _spinner = Spinner::start("Deleting");
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}
