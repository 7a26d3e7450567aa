//! `corro cluster create`: creates a cluster, with the group and the workspace that are missing. Names that are not given are those of 'corro submit'.

use clap::Args;
use corro_model::batchai::{ClusterCreateParameters, ClusterSpec, VmPriority};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{ClustersCreate, ClustersGet};
use corro_model::validate;

use super::text::{scaling_text, vm_size_text};
use crate::commands::batchai::admin_account::{self, AdminArgs};
use crate::commands::batchai::cluster::spec::{self, ClusterOptions};
use crate::commands::batchai::cluster::{self, Clusters};
use crate::commands::submit::names::{DEFAULT_NAME, NodeResources, smallest_vm_size};
use crate::commands::submit::resources::ensure_workspace;
use crate::commands::submit::values::parse_memory;
use crate::defaults::{DefaultName, Defaults};
use crate::error::CliError;
use crate::progress::Spinner;
use crate::resource::actions;
use crate::resource::resource_ref::{CLUSTER_FLAG, GROUP_FLAG, ResourceRef, WORKSPACE_FLAG};
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Name of the cluster
    #[arg(value_name = "NAME")]
    name: String,
    /// Number of nodes, for a cluster of a fixed size
    #[arg(long, short = 'N', visible_alias = "target", visible_short_alias = 't', value_name = "N", conflicts_with_all = ["min", "max"], help_heading = "Nodes")]
    nodes: Option<i32>,
    /// Minimum number of nodes, even without jobs [default: 0]
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    min: Option<i32>,
    /// Maximum number of nodes [default: 1, or the minimum]
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    max: Option<i32>,
    /// GPUs of each node
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    gpus: Option<u32>,
    /// Cores of each node
    #[arg(long, value_name = "N", help_heading = "Nodes")]
    cores: Option<u32>,
    /// Memory of each node in GiB, such as 16G
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = "Nodes")]
    memory: Option<u32>,
    /// VM size of each node, such as Standard_NC6, instead of --gpus, --cores and --memory
    #[arg(long, short = 's', value_name = "SIZE", conflicts_with_all = ["gpus", "cores", "memory"], help_heading = "Nodes")]
    vm_size: Option<String>,
    /// The nodes can be preempted
    #[arg(long, help_heading = "Nodes")]
    low_priority: bool,
    /// Resource group [default: default]
    #[arg(long, short = 'g', value_name = "GROUP", help_heading = "Names")]
    resource_group: Option<String>,
    /// Workspace [default: default]
    #[arg(long, short = 'w', value_name = "WORKSPACE", help_heading = "Names")]
    workspace: Option<String>,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: CreateArgs) -> Result<(), CliError> {
    check_name(NameKind::Cluster, &args.name)?;
    let spec = spec(&args)?;
    let defaults = Defaults::load()?;
    let name =
        |given: &Option<String>, kind| defaults.or_given(given.as_deref(), kind).unwrap_or(DEFAULT_NAME).to_owned();
    let group = name(&args.resource_group, DefaultName::Group);
    let workspace = name(&args.workspace, DefaultName::Workspace);
    check_name(NameKind::Group, &group)?;
    check_name(NameKind::Workspace, &workspace)?;
    let target = ResourceRef::from_names(&[
        ("group", GROUP_FLAG, Some(&group)),
        ("workspace", WORKSPACE_FLAG, Some(&workspace)),
        ("cluster", CLUSTER_FLAG, Some(&args.name)),
    ])?;
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let created = ensure_workspace(client, &group, &workspace).await?;
    if !created.is_empty() {
        note(format_args!("Created {}", created.join(", ")));
    }
    if client.find::<ClustersGet>(&target.values()).await.map_err(|error| target.request_error(error))?.is_some() {
        let hint = format!("choose another name, or change its size with 'corro cluster resize {}'", args.name);
        return Err(actions::already_exists(&target, "cluster").hint(hint));
    }
    let spinner = Spinner::start("Creating");
    let made = client.run::<ClustersCreate>(&target.values(), &ClusterCreateParameters { properties: spec }).await;
    drop(spinner);
    let made = made.map_err(|error| target.request_error(error))?;
    if args.global.is_output_chosen() {
        return actions::print::<Clusters>(&session, &made);
    }
    let spec = &made.properties.spec;
    let (scaling, size) = (scaling_text(&spec.scale_settings), vm_size_text(&spec.vm_size));
    print(format_args!("Created cluster {} in workspace {workspace}: {scaling}, {size}", made.name));
    if args.nodes.is_some() {
        note(format_args!("Its nodes are starting: see 'corro cluster show {}'.", made.name));
    }
    Ok(())
}

/// The cluster that the arguments describe. Pure, but for the key of the administrator.
fn spec(args: &CreateArgs) -> Result<ClusterSpec, CliError> {
    let wanted = NodeResources { gpus: args.gpus, cores: args.cores, memory_gib: args.memory };
    let vm_size = match &args.vm_size {
        Some(name) => name.clone(),
        None => smallest_vm_size(&wanted)
            .ok_or_else(|| {
                CliError::new(format!("no VM size has {}", wanted.text())).hint("ask for less on each node")
            })?
            .name
            .to_owned(),
    };
    let min = args.min.unwrap_or(0);
    let options = ClusterOptions {
        vm_size: Some(vm_size),
        vm_priority: args.low_priority.then_some(VmPriority::LowPriority),
        target: args.nodes,
        min: args.nodes.is_none().then_some(min),
        max: args.nodes.is_none().then(|| args.max.unwrap_or(min.max(1))),
        ..ClusterOptions::default()
    };
    let account = admin_account::account(&AdminArgs::generating_keys(), Default::default())?;
    let spec = spec::plan(Default::default(), &options, account)?;
    validate::check_cluster(&spec).map_err(cluster::in_options)?;
    Ok(spec)
}
