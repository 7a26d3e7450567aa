//! `corro group`: resource groups.

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::arm::{Group, GroupCreateParameters};
use corro_model::ops::{
    AccountsListByGroup, ClustersList, ExperimentsList, GroupsCheck, GroupsCreate, GroupsDelete, GroupsGet, GroupsList,
    NoBody, WorkspacesListByGroup,
};

use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::resource::resource_ref::parse_tags;
use crate::session::{GlobalArgs, Session, setting};

mod update;
mod wait;

#[derive(Args, Debug)]
pub struct GroupArgs {
    #[command(subcommand)]
    command: GroupCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// Create a resource group
    #[command(after_help = "Example:\n  corro group create --name batchai.horovod --location eastus")]
    Create(CreateArgs),
    /// Change the tags of a resource group
    Update(update::UpdateArgs),
    /// Show a resource group
    Show(NameArgs),
    /// List the resource groups
    List(ListArgs),
    /// Check whether a resource group exists, and print true or false
    Exists(NameArgs),
    /// Delete a resource group and all its resources, including file shares
    #[command(after_help = "Example:\n  corro group delete --name batchai.horovod --yes")]
    Delete(DeleteArgs),
    /// Wait until a resource group is created, updated or deleted
    #[command(after_help = "Example:\n  corro group wait --name batchai.horovod --deleted")]
    Wait(wait::WaitArgs),
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
    /// Location to show, such as eastus. It does not affect where jobs run [default: $AZURE_DEFAULTS_LOCATION]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
    /// Tags, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// List only groups with this tag, as KEY or KEY=VALUE
    #[arg(long, value_name = "KEY[=VALUE]")]
    tag: Option<String>,
}

#[derive(Args, Debug)]
struct DeleteArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Return at once, without waiting until the group is deleted
    #[arg(long)]
    no_wait: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(args: GroupArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    match args.command {
        GroupCommand::Create(args) => create(&session, args).await,
        GroupCommand::Show(args) => {
            let group =
                session.client()?.get::<GroupsGet>(&[("group", &args.name)]).await.map_err(CliError::from_show)?;
            session.print(Shape::ResourceGroup, None, &group)
        }
        GroupCommand::List(args) => list(&session, args).await,
        GroupCommand::Exists(args) => {
            let exists = session.client()?.exists::<GroupsCheck>(&[("group", &args.name)]).await?;
            session.print_value(&exists.into())
        }
        GroupCommand::Delete(args) => delete(&session, args).await,
        GroupCommand::Update(args) => update::run(&session, args).await,
        GroupCommand::Wait(args) => wait::run(&session, args).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let location = args
        .location
        .or_else(|| setting("defaults", "location"))
        .ok_or_else(|| CliError::missing_arguments(&["--location/-l"], &["--name/-n", "--location/-l"]))?;
    let tags = (!args.tags.is_empty()).then(|| parse_tags(&args.tags));
    let parameters = GroupCreateParameters { location, tags };
    let group = session.client()?.call::<GroupsCreate>(&[("group", &args.name.name)], &[], &parameters).await?;
    session.print(Shape::ResourceGroup, None, &group)
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    let filter = args.tag.as_deref().map(tag_filter).transpose()?;
    let query: Vec<(&str, &str)> = filter.iter().map(|filter| ("$filter", filter.as_str())).collect();
    let groups: Vec<Group> = session.client()?.list::<GroupsList, _>(&[], &query).await?;
    session.print(Shape::ResourceGroup, Some(TableKind::Group), &groups)
}

/// The `$filter` of the API for `key` or `key=value`.
fn tag_filter(tag: &str) -> Result<String, CliError> {
    let (key, value) = tag.split_once('=').map_or((tag, None), |(key, value)| (key, Some(value)));
    if key.is_empty() || tag.contains('\'') {
        return Err(CliError::usage(format!("argument --tag: '{tag}' is not a label: write key or key=value")));
    }
    Ok(match value {
        None => format!("tagname eq '{key}'"),
        Some(value) => format!("tagname eq '{key}' and tagvalue eq '{value}'"),
    })
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), CliError> {
    let path = [("group", args.name.name.as_str())];
    let warning = match args.yes {
        true => None,
        false => Some(deletion_warning(session.client()?, &args.name.name).await?),
    };
    prompt::confirm(args.yes, warning.as_deref())?;
    let pending = session.client()?.start::<GroupsDelete>(&path, &NoBody {}).await?;
    if !args.no_wait {
        let _spinner = Spinner::start("Deleting");
        session.client()?.wait(pending).await?;
    }
    Ok(())
}

/// Text that lists the contents of the group, for the confirmation.
async fn deletion_warning(client: &Client, group: &str) -> Result<String, CliError> {
    client.get::<GroupsGet>(&[("group", group)]).await?;
    let mut lines = Vec::new();
    for workspace in client.list::<WorkspacesListByGroup, _>(&[("group", group)], &[]).await? {
        let inside = [("group", group), ("workspace", workspace.name.as_str())];
        let clusters = client.list::<ClustersList, _>(&inside, &[]).await?.len();
        let experiments = client.list::<ExperimentsList, _>(&inside, &[]).await?.len();
        let (clusters, experiments) = (count(clusters, "cluster"), count(experiments, "experiment"));
        lines.push(format!("  workspace {}: {clusters}, {experiments} with all jobs", workspace.name));
    }
    for account in client.list::<AccountsListByGroup, _>(&[("group", group)], &[]).await? {
        lines.push(format!("  storage account {}: all shares, containers and files", account.name));
    }
    Ok(match lines.is_empty() {
        true => format!("The resource group '{group}' is empty."),
        false => format!("Deleting the resource group '{group}' also deletes:\n{}", lines.join("\n")),
    })
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_filters() {
        assert_eq!(tag_filter("a").expect("a label"), "tagname eq 'a'");
        assert_eq!(tag_filter("a=b=c").expect("a label"), "tagname eq 'a' and tagvalue eq 'b=c'");
        for tag in ["", "=b", "a=it's"] {
            assert_eq!(tag_filter(tag).map_err(|error| error.exit), Err(2), "{tag}");
        }
    }
}
