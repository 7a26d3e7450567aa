//! `corro batchai workspace`: create, show, list and delete workspaces.

use clap::{Args, Subcommand};
use corro_model::batchai::{Workspace, WorkspaceCreateParameters};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{
    GroupsGet, WorkspacesCreate, WorkspacesDelete, WorkspacesGet, WorkspacesList, WorkspacesListByGroup,
};

use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::resource::actions::{self, EndAction, Resource};
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection};
use crate::resource::resource_ref::{GROUP_FLAG, NameArg, ResourceRef};
use crate::session::{Session, setting};

#[derive(Subcommand, Debug)]
pub enum WorkspaceCommand {
    /// Create a workspace
    #[command(
        after_help = "Example:\n  corro batchai workspace create --resource-group batchai.horovod \\\n      --workspace batchaidev"
    )]
    Create(CreateArgs),
    /// Show a workspace
    Show(ResourceSelection<NameArgs>),
    /// List the workspaces of a resource group, or of all groups
    List(ListArgs),
    /// Delete a workspace and its clusters, experiments and jobs
    Delete(EndArgs<NameArgs>),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the resource group [default: $AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'n', alias = "name", value_name = "WORKSPACE")]
    workspace: Option<String>,
}

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        vec![
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", "--workspace/-n", self.workspace.as_deref()),
        ]
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Location to show [default: the location of the resource group]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only the workspaces of this resource group
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
}

struct Workspaces;

impl Resource for Workspaces {
    type Item = Workspace;
    type Get = WorkspacesGet;
    type List = WorkspacesListByGroup;
    const SHAPE: Shape = Shape::Workspace;
    const TABLE: TableKind = TableKind::Workspace;
}

pub async fn run(session: &Session, command: WorkspaceCommand) -> Result<(), CliError> {
    let deleting = EndAction {
        progress_text: "Deleting",
        is_deletion: true,
        warning: Some(|_| {
            "Its clusters, experiments, jobs and file servers are deleted with it, running jobs are stopped.".to_owned()
        }),
    };
    match command {
        WorkspaceCommand::Create(args) => create(session, args).await,
        WorkspaceCommand::Show(args) => actions::show::<Workspaces>(session, &args).await,
        WorkspaceCommand::List(args) => list(session, args).await,
        WorkspaceCommand::Delete(args) => actions::end::<Workspaces, WorkspacesDelete>(session, &args, deleting).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.name.target()?;
    check_name(NameKind::Workspace, target.name("workspace"))?;
    let location = match args.location.or_else(|| setting("defaults", "location")) {
        Some(location) => location,
        None => session.client()?.get::<GroupsGet>(&[("group", target.name("group"))]).await?.location,
    };
    let parameters = WorkspaceCreateParameters { location, tags: Default::default() };
    let spinner = Spinner::start("Creating");
    let workspace = session.client()?.run::<WorkspacesCreate>(&target.values(), &parameters).await;
    drop(spinner);
    actions::print::<Workspaces>(session, &workspace.map_err(|error| target.request_error(error))?)
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    match args.resource_group.or_else(|| setting("defaults", "group")) {
        Some(group) => {
            let parent = ResourceRef::from_names(&[("group", GROUP_FLAG, Some(&group))])?;
            actions::list::<Workspaces>(session, &parent).await
        }
        None => {
            let workspaces: Vec<Workspace> = session.client()?.list::<WorkspacesList, _>(&[], &[]).await?;
            session.print(Workspaces::SHAPE, Some(Workspaces::TABLE), &workspaces)
        }
    }
}
