//! `corro batchai cluster create`: combines arguments, file and defaults of this machine ([`super::spec`]), adds data of the server (keys, file servers,
//! automatic storage), and creates the cluster.

use std::path::PathBuf;

use clap::Args;
use corro_model::batchai::{ClusterCreateParameters, ClusterSpec, VmPriority};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{ClustersCreate, ClustersGet};
use corro_model::validate;

use super::{Clusters, NameArgs};
use crate::commands::batchai::admin_account::{self, AdminArgs};
use crate::commands::batchai::auto_storage;
use crate::commands::batchai::cluster::spec::{self, ClusterFile, ClusterOptions};
use crate::commands::batchai::volumes::{self, MountArgs};
use crate::config_file;
use crate::error::CliError;
use crate::output::Shape;
use crate::progress::Spinner;
use crate::resource::actions;
use crate::resource::args::ResourceNames;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// JSON or YAML file that describes the cluster. Arguments override its values
    #[arg(long, short = 'f', value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// VM size of each node, such as Standard_NC6 (6 cores, 1 GPU)
    #[arg(long, short = 's', value_name = "SIZE", help_heading = "Nodes")]
    vm_size: Option<String>,
    /// Priority of the nodes: dedicated, or lowpriority for nodes that can be preempted [default: dedicated]
    #[arg(long, value_name = "PRIORITY", value_parser = vm_priority, help_heading = "Nodes")]
    vm_priority: Option<VmPriority>,
    /// Number of nodes. With --min and --max, the initial number of nodes
    #[arg(long, short = 't', value_name = "N", allow_negative_numbers = true, help_heading = "Nodes")]
    target: Option<i32>,
    /// Minimum number of nodes, for automatic scaling
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Nodes")]
    min: Option<i32>,
    /// Maximum number of nodes, for automatic scaling
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Nodes")]
    max: Option<i32>,
    /// Operating system image: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version. Stored and shown, but not used
    #[arg(long, short = 'i', value_name = "IMAGE", help_heading = "Nodes")]
    image: Option<String>,
    /// Full id of a custom image. Requires --image. Stored and shown, but not used
    #[arg(long, value_name = "ID", help_heading = "Nodes")]
    custom_image: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Command that runs on each new node before its first job
    #[arg(long, value_name = "COMMAND", help_heading = "Setup Task")]
    setup_task: Option<String>,
    /// Directory for the output of the setup task, such as $AZ_BATCHAI_MOUNT_ROOT/afs. Required with --setup-task
    #[arg(long, value_name = "PATH", help_heading = "Setup Task")]
    setup_task_output: Option<String>,
    /// Full id of a virtual network's subnet. Stored and shown, but not used
    #[arg(long, value_name = "ID", help_heading = "Virtual Network")]
    subnet: Option<String>,
    /// Mount a file share at autoafs and a blob container at autobfs. Their storage account is created if it does not exist
    #[arg(long, help_heading = "Auto Storage")]
    use_auto_storage: bool,
    #[command(flatten)]
    mounts: MountArgs,
}

pub async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.name.target()?;
    let mut spec = spec(&args, &target)?;
    must_be_new(session, &target).await?;
    fill_volumes(session, &args, &target, &mut spec).await?;
    validate::check_cluster(&spec)?;
    let spinner = Spinner::start("Creating");
    let parameters = ClusterCreateParameters { properties: spec };
    let made = session.client()?.run::<ClustersCreate>(&target.values(), &parameters).await;
    drop(spinner);
    actions::print::<Clusters>(session, &made.map_err(|error| target.request_error(error))?)
}

/// Builds and validates the cluster without requests to the server.
fn spec(args: &CreateArgs, target: &ResourceRef) -> Result<ClusterSpec, CliError> {
    check_name(NameKind::Cluster, target.name("cluster"))?;
    let file = match &args.config_file {
        Some(path) => config_file::read::<ClusterFile>(path, Shape::Cluster)?.properties,
        None => Default::default(),
    };
    let account = admin_account::account(&args.admin, file.user_account_settings.clone().unwrap_or_default())?;
    let spec = spec::plan(file, &cluster_options(args), account)?;
    let by_options = args.target.is_some() || args.min.is_some() || args.max.is_some();
    let failure = |error| if by_options { super::in_options(error) } else { CliError::from(error) };
    validate::check_cluster(&spec).map_err(failure)?;
    Ok(spec)
}

async fn must_be_new(session: &Session, target: &ResourceRef) -> Result<(), CliError> {
    let found = session.client()?.find::<ClustersGet>(&target.values()).await;
    match found.map_err(|error| target.request_error(error))? {
        None => Ok(()),
        Some(_) => Err(actions::already_exists(target, "cluster").hint(format!(
            "choose another name, or change its size with 'corro batchai cluster resize {} -t N'",
            target.arguments()
        ))),
    }
}

async fn fill_volumes(
    session: &Session,
    args: &CreateArgs,
    target: &ResourceRef,
    spec: &mut ClusterSpec,
) -> Result<(), CliError> {
    let client = session.client()?;
    if let Some(subnet) = &args.subnet {
        volumes::check_subnet(client, target, &args.mounts, subnet).await?;
    }
    let volumes = spec.node_setup.as_mut().and_then(|setup| setup.mount_volumes.take());
    let mut volumes = volumes::fill(client, volumes, &args.mounts, target).await?;
    if args.use_auto_storage {
        let account = auto_storage::ensure(session, target).await?;
        account.mount(volumes.get_or_insert_default());
    }
    if volumes.is_some() {
        spec.node_setup.get_or_insert_default().mount_volumes = volumes;
    }
    Ok(())
}

fn cluster_options(args: &CreateArgs) -> ClusterOptions {
    ClusterOptions {
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
