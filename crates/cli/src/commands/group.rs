//! `corro group`: resource groups.

use clap::{Args, Subcommand};
use corro_model::arm::{Group, GroupCreateParameters};
use corro_model::ops::{GroupsCheck, GroupsCreate, GroupsDelete, GroupsGet, GroupsList, NoBody};

use super::target::tags;
use crate::failure::Failure;
use crate::output::Shape;
use crate::progress::Spinner;
use crate::prompt;
use crate::session::{GlobalArgs, Session, setting};

#[derive(Args, Debug)]
pub struct GroupArgs {
    #[command(subcommand)]
    command: GroupCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// Make a resource group, the box that holds everything of one project
    #[command(after_help = "Example:\n  corro group create --name batchai.horovod --location eastus")]
    Create(CreateArgs),
    /// Show a resource group
    Show(NameArgs),
    /// List the resource groups
    List(ListArgs),
    /// Say whether a resource group exists: true or false
    Exists(NameArgs),
    /// Delete a resource group and everything in it, shares included
    #[command(after_help = "Example:\n  corro group delete --name batchai.horovod --yes")]
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
struct NameArgs {
    /// Name of the resource group
    #[arg(long, short = 'n', visible_alias = "resource-group", visible_short_alias = 'g', value_name = "NAME")]
    name: String,
}

#[derive(Args, Debug)]
struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Region to report; Corro runs everything where it is [default: AZURE_DEFAULTS_LOCATION]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
    /// Labels: key=value ...
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Only groups with this label: key or key=value
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Option<String>,
}

#[derive(Args, Debug)]
struct DeleteArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Do not wait until everything is gone
    #[arg(long)]
    no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(args: GroupArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    match args.command {
        GroupCommand::Create(args) => create(&session, args).await,
        GroupCommand::Show(args) => {
            let group = session.client()?.get::<GroupsGet>(&[("group", &args.name)]).await.map_err(Failure::of_show)?;
            session.print(Shape::ResourceGroup, None, &group)
        }
        GroupCommand::List(args) => list(&session, args).await,
        GroupCommand::Exists(args) => {
            let exists = session.client()?.exists::<GroupsCheck>(&[("group", &args.name)]).await?;
            session.print_value(&exists.into())
        }
        GroupCommand::Delete(args) => delete(&session, args).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let location = args
        .location
        .or_else(|| setting("defaults", "location"))
        .ok_or_else(|| Failure::usage("the following arguments are required: --location/-l"))?;
    let tags = (!args.tags.is_empty()).then(|| tags(&args.tags));
    let parameters = GroupCreateParameters { location, tags };
    let group = session.client()?.call::<GroupsCreate>(&[("group", &args.name.name)], &[], &parameters).await?;
    session.print(Shape::ResourceGroup, None, &group)
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let mut groups: Vec<Group> = session.client()?.list::<GroupsList, _>(&[], &[]).await?;
    if let Some(wanted) = &args.tag {
        let (key, value) = wanted.split_once('=').map_or((wanted.as_str(), None), |(key, value)| (key, Some(value)));
        groups.retain(|group| {
            let found = group.tags.as_ref().and_then(|tags| tags.get(key));
            found.is_some_and(|found| value.is_none_or(|value| value == found))
        });
    }
    session.print(Shape::ResourceGroup, None, &groups)
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let loss =
        "Everything in the group is deleted with it: workspaces, clusters, jobs, storage accounts, shares and files.";
    prompt::confirm_loss(args.yes, Some(loss))?;
    let pending = session.client()?.start::<GroupsDelete>(&[("group", &args.name.name)], &NoBody {}).await?;
    if !args.no_wait {
        let _spinner = Spinner::start("Deleting");
        session.client()?.wait(pending).await?;
    }
    Ok(())
}
