//! `corro batchai file-server`: create, show, list and delete file servers. [`spec`] builds the request of a new one.

mod spec;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_model::batchai::{FileServer, FileServerCreateParameters, NfsMount};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{FileServersCreate, FileServersDelete, FileServersGet, FileServersList, NoBody, WorkspacesGet};
use corro_model::validate;

use crate::commands::batchai::admin_account::{self, AdminArgs};
use crate::config_file;
use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::resource::actions::{self, EndAction, Resource};
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection, WorkspaceArgs, with_parent};
use crate::resource::resource_ref::{NAME_FLAG, NameArg};
use crate::session::{Session, setting};
use crate::stdio::note;
use spec::{DiskArgs, ServerFile};

#[derive(Subcommand, Debug)]
pub enum FileServerCommand {
    /// Create a file server. Clusters and jobs mount it with --nfs
    #[command(
        after_help = "Example:\n  corro batchai file-server create -g batchai.horovod -w batchaidev -n nfs \\\n      --vm-size Standard_D2_v2 --disk-count 1 --disk-size 100 \\\n      --storage-sku Premium_LRS --generate-ssh-keys"
    )]
    Create(Box<CreateArgs>),
    /// Show a file server
    Show(ResourceSelection<NameArgs>),
    /// List the file servers of a workspace
    List(WorkspaceArgs),
    /// Delete a file server and its files
    Delete(EndArgs<NameArgs>),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the file server
    #[arg(long, short = 'n', value_name = "NAME")]
    name: Option<String>,
}

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("fileServer", NAME_FLAG, self.name.as_deref()))
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// JSON or YAML file that describes the file server. Arguments override its values
    #[arg(long, short = 'f', value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// VM size of the file server, such as Standard_D2_v2. Stored and shown, but not used
    #[arg(long, short = 's', value_name = "SIZE")]
    vm_size: Option<String>,
    #[command(flatten)]
    disks: DiskArgs,
    #[command(flatten)]
    admin: AdminArgs,
    /// Full id of a virtual network's subnet. Stored and shown, but not used
    #[arg(long, value_name = "ID", help_heading = "Virtual Network")]
    subnet: Option<String>,
    /// Return at once, without waiting until the file server is created
    #[arg(long, help_heading = "Options")]
    no_wait: bool,
}

impl FileServerCommand {
    fn workspace_args(&mut self) -> &mut WorkspaceArgs {
        match self {
            FileServerCommand::Create(args) => &mut args.name.workspace,
            FileServerCommand::Show(args) => &mut args.named.workspace,
            FileServerCommand::List(args) => args,
            FileServerCommand::Delete(args) => &mut args.selection.named.workspace,
        }
    }
}

struct FileServers;

impl Resource for FileServers {
    type Item = FileServer;
    type Get = FileServersGet;
    type List = FileServersList;
    const SHAPE: Shape = Shape::FileServer;
    const TABLE: TableKind = TableKind::FileServer;
}

pub async fn run(session: &Session, mut command: FileServerCommand) -> Result<(), CliError> {
    // As in `az`, only these commands have a default workspace.
    let default = |option: &str| setting("defaults", &format!("default_workspace_{option}"));
    command.workspace_args().set_default(default("resource_group"), default("name"));
    let deleting = EndAction {
        progress_text: "Deleting",
        is_deletion: true,
        warning: Some(|_| "All files on it are deleted with it.".to_owned()),
    };
    match command {
        FileServerCommand::Create(args) => create(session, *args).await,
        FileServerCommand::Show(args) => {
            actions::show::<FileServers>(session, &args).await?;
            note_mount_command(session, &args).await
        }
        FileServerCommand::List(args) => actions::list::<FileServers>(session, &args.target()?).await,
        FileServerCommand::Delete(args) => {
            actions::end::<FileServers, FileServersDelete>(session, &args, deleting).await
        }
    }
}

/// Prints the NFS mount command to standard error: the output of `az` has no field for it.
async fn note_mount_command(session: &Session, args: &ResourceSelection<NameArgs>) -> Result<(), CliError> {
    // `--ids` may name several file servers.
    let Ok(target) = args.named.target() else { return Ok(()) };
    let values = target.values();
    let found = session.client()?.call::<FileServersGet>(&values, &[("$expand", "nfs")], &NoBody {}).await;
    let server: FileServer = found.map_err(|error| target.request_error(error))?;
    if let Some(NfsMount { address, port, path }) = server.properties.mount_settings.and_then(|settings| settings.nfs) {
        note(format_args!(
            "Other machines mount it with: mount -t nfs -o vers=3,nolock,port={port},mountport={port} {address}:{path} DIRECTORY"
        ));
    }
    Ok(())
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.name.target()?;
    check_name(NameKind::FileServer, target.name("fileServer"))?;
    let file = match &args.config_file {
        Some(path) => config_file::read::<ServerFile>(path, Shape::FileServer)?.properties,
        None => Default::default(),
    };
    let account = admin_account::account(&args.admin, file.ssh_configuration.user_account_settings.clone())?;
    let spec = spec::plan(file, (args.vm_size.as_deref(), &args.disks, args.subnet.as_deref()), account)?;
    validate::check_file_server(&spec)?;

    let (client, values) = (session.client()?, target.values());
    if client.find::<FileServersGet>(&values).await.map_err(|error| target.request_error(error))?.is_some() {
        return Err(actions::already_exists(&target, "fileServer").hint("choose another name"));
    }
    // A missing workspace has its own error.
    client.get::<WorkspacesGet>(&values).await.map_err(|error| target.request_error(error))?;
    let pending = client.start::<FileServersCreate>(&values, &FileServerCreateParameters { properties: spec }).await;
    let pending = pending.map_err(|error| target.request_error(error))?;
    if args.no_wait {
        return Ok(());
    }
    let spinner = Spinner::start("Creating");
    let made = client.wait(pending).await?;
    drop(spinner);
    actions::print::<FileServers>(session, &made)
}
