//! `corro batchai workspace`.

use clap::{Args, Subcommand};
use corro_model::batchai::{Workspace, WorkspaceCreateParameters};
use corro_model::ops::{
    GroupsGet, NoBody, WorkspacesCreate, WorkspacesDelete, WorkspacesGet, WorkspacesList, WorkspacesListByGroup,
};

use super::target::{GROUP_FLAG, Name, Target};
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::session::{Session, setting};

#[derive(Subcommand, Debug)]
pub enum WorkspaceCommand {
    /// Make a workspace
    #[command(
        after_help = "Example:\n  corro batchai workspace create --resource-group batchai.horovod \\\n      --workspace batchaidev"
    )]
    Create(CreateArgs),
    /// Show a workspace
    Show(ShowArgs),
    /// List the workspaces of a group, or all of them
    List(ListArgs),
    /// Delete a workspace with its clusters, experiments and jobs
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
struct NameArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'n', alias = "name", value_name = "WORKSPACE")]
    workspace: Option<String>,
}

impl NameArgs {
    fn names(&self) -> [Name<'_>; 2] {
        [
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", "--workspace/-n", self.workspace.as_deref()),
        ]
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Region to report [default: the resource group's]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
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
    /// Only the workspaces of this resource group
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    target: ShowArgs,
    /// Do not wait until everything is gone
    #[arg(long)]
    no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(session: &Session, command: WorkspaceCommand) -> Result<(), Failure> {
    match command {
        WorkspaceCommand::Create(args) => create(session, args).await,
        WorkspaceCommand::Show(args) => show(session, args).await,
        WorkspaceCommand::List(args) => list(session, args).await,
        WorkspaceCommand::Delete(args) => delete(session, args).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let target = Target::named(&args.name.names())?;
    let location = match args.location.or_else(|| setting("defaults", "location")) {
        Some(location) => location,
        None => session.client()?.get::<GroupsGet>(&[("group", target.name("group"))]).await?.location,
    };
    let parameters = WorkspaceCreateParameters { location, tags: Default::default() };
    let workspace = session.client()?.run::<WorkspacesCreate>(&target.values(), &parameters).await?;
    session.print(Shape::Workspace, Some(TableKind::Workspace), &workspace)
}

async fn show(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let targets = Target::all::<WorkspacesGet>(&args.ids, &args.name.names())?;
    let mut found = Vec::new();
    for target in &targets {
        found.push(session.client()?.get::<WorkspacesGet>(&target.values()).await.map_err(Failure::of_show)?);
    }
    session.print_found(Shape::Workspace, TableKind::Workspace, &found, args.ids.len())
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let workspaces: Vec<Workspace> = match args.resource_group.or_else(|| setting("defaults", "group")) {
        Some(group) => session.client()?.list::<WorkspacesListByGroup, _>(&[("group", &group)], &[]).await?,
        None => session.client()?.list::<WorkspacesList, _>(&[], &[]).await?,
    };
    session.print(Shape::Workspace, Some(TableKind::Workspace), &workspaces)
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let targets = Target::all::<WorkspacesGet>(&args.target.ids, &args.target.name.names())?;
    prompt::confirm(args.yes)?;
    for target in &targets {
        let pending = session.client()?.start::<WorkspacesDelete>(&target.values(), &NoBody {}).await?;
        if !args.no_wait {
            let _spinner = Spinner::start("Deleting");
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}
