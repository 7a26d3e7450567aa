//! `corro storage directory`.

use clap::{Args, Subcommand};
use corro_client::files::Entry;
use serde_json::json;

use super::storage_login::{self, AccountArgs};
use super::target::tags;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum DirectoryCommand {
    /// Make a directory on a share; the one above it must exist
    #[command(
        after_help = "Example:\n  corro storage directory create --name cifar --share-name myshare \\\n      --account-name mystorageaccount"
    )]
    Create(CreateArgs),
    /// List the directories in a directory of a share
    List(ListArgs),
    /// Delete an empty directory
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Path of the directory
    #[arg(long, short = 'n', value_name = "PATH")]
    name: String,
    /// Name of the share
    #[arg(long, short = 's', value_name = "SHARE")]
    share_name: String,
    /// Fail when the directory is there already
    #[arg(long)]
    fail_on_exist: bool,
    /// Names and values to send with it: key=value ...
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Directory to look into [default: the share's root]
    #[arg(long, short = 'n', value_name = "PATH", default_value = "", hide_default_value = true)]
    name: String,
    /// Name of the share
    #[arg(long, short = 's', value_name = "SHARE")]
    share_name: String,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Path of the directory
    #[arg(long, short = 'n', value_name = "PATH")]
    name: String,
    /// Name of the share
    #[arg(long, short = 's', value_name = "SHARE")]
    share_name: String,
    /// Fail when there is no such directory
    #[arg(long)]
    fail_not_exist: bool,
    #[command(flatten)]
    account: AccountArgs,
}

pub async fn run(session: &Session, command: DirectoryCommand) -> Result<(), Failure> {
    match command {
        DirectoryCommand::Create(args) => {
            let files = storage_login::open(session, &args.account).await?;
            let created = files.create_directory(&args.share_name, &args.name, &tags(&args.metadata)).await?;
            if !created && args.fail_on_exist {
                return Err(Failure::new(format!("The directory \"{}\" already exists.", args.name)));
            }
            session.print_value(&json!({ "created": created }))
        }
        DirectoryCommand::List(args) => {
            let files = storage_login::open(session, &args.account).await?;
            let entries = files.list(&args.share_name, &args.name).await?;
            let directories: Vec<_> = entries
                .iter()
                .filter_map(|entry| match entry {
                    Entry::Directory { name } => Some(json!({"name": name, "properties": {}, "type": "dir"})),
                    Entry::File { .. } => None,
                })
                .collect();
            session.print(Shape::ShareDirectory, Some(TableKind::ShareEntry), &directories)
        }
        DirectoryCommand::Delete(args) => {
            let files = storage_login::open(session, &args.account).await?;
            let deleted = match files.delete_directory(&args.share_name, &args.name).await {
                Ok(()) => true,
                Err(error) if error.is_not_found() && !args.fail_not_exist => false,
                Err(error) => return Err(error.into()),
            };
            session.print_value(&json!({ "deleted": deleted }))
        }
    }
}
