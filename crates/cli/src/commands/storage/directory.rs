//! `corro storage directory`: directories of shares.

use clap::{Args, Subcommand};
use corro_client::FileService;
use corro_client::files::Entry;
use serde_json::json;

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::file_objects as objects;
use crate::error::CliError;
use crate::output::TableKind;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum DirectoryCommand {
    /// Create a directory on a share. Its parent directory must exist
    #[command(
        after_help = "Example:\n  corro storage directory create --name cifar --share-name myshare \\\n      --account-name mystorageaccount"
    )]
    Create(CreateArgs),
    /// List the subdirectories of a directory
    List(ListArgs),
    /// Show a directory
    Show(PathArgs),
    /// Check whether a directory exists
    Exists(PathArgs),
    /// Delete an empty directory
    Delete(DeleteArgs),
    /// Show or replace the metadata of a directory
    #[command(subcommand)]
    Metadata(MetadataCommand),
}

#[derive(Subcommand, Debug)]
pub enum MetadataCommand {
    /// Show the metadata
    Show(PathArgs),
    /// Replace all metadata
    Update(UpdateArgs),
}

#[derive(Args, Debug)]
struct ShareArgs {
    /// Name of the share
    #[arg(long, short = 's', value_name = "SHARE")]
    share_name: String,
    /// Use this snapshot of the share, instead of its current content
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    #[command(flatten)]
    account: AccountArgs,
}

impl ShareArgs {
    async fn open(&self, session: &Session) -> Result<FileService, CliError> {
        Ok(auth::open_share(session, &self.account, &self.share_name).await?.at_snapshot(self.snapshot.clone()))
    }
}

#[derive(Args, Debug)]
pub struct PathArgs {
    /// Path of the directory
    #[arg(long, short = 'n', value_name = "PATH")]
    name: String,
    #[command(flatten)]
    share: ShareArgs,
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    directory: PathArgs,
    /// Fail if the directory already exists
    #[arg(long)]
    fail_on_exist: bool,
    /// Metadata of the directory, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Directory to list [default: the root of the share]
    #[arg(long, short = 'n', value_name = "PATH", default_value = "", hide_default_value = true)]
    name: String,
    #[command(flatten)]
    share: ShareArgs,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    directory: PathArgs,
    /// Fail if the directory does not exist
    #[arg(long)]
    fail_not_exist: bool,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    directory: PathArgs,
    /// Metadata of the directory, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

pub async fn run(session: &Session, command: DirectoryCommand) -> Result<(), CliError> {
    match command {
        DirectoryCommand::Create(args) => {
            let PathArgs { name, share } = &args.directory;
            let files = share.open(session).await?;
            let created = files.create_directory(&share.share_name, name, &parse_tags(&args.metadata)).await?;
            if !created && args.fail_on_exist {
                return Err(CliError::new(format!("The directory \"{name}\" already exists.")));
            }
            session.print_value(&json!({ "created": created }))
        }
        DirectoryCommand::List(args) => {
            let entries = args.share.open(session).await?.list(&args.share.share_name, &args.name).await?;
            let directories = entries.iter().filter(|entry| matches!(entry, Entry::Directory { .. }));
            let shown: Vec<_> = directories.map(objects::entry).collect();
            session.print_shaped(&shown.into(), Some(TableKind::ShareEntry))
        }
        DirectoryCommand::Show(PathArgs { name, share }) => {
            let found = share.open(session).await?.directory_properties(&share.share_name, &name).await;
            session.print_shaped(&objects::directory(&name, &found.map_err(CliError::from_show)?), None)
        }
        DirectoryCommand::Exists(PathArgs { name, share }) => {
            let found = share.open(session).await?.directory_properties(&share.share_name, &name).await;
            session.print_value(&json!({"exists": auth::exists_result(found)?}))
        }
        DirectoryCommand::Delete(args) => {
            let PathArgs { name, share } = &args.directory;
            let deleted = match share.open(session).await?.delete_directory(&share.share_name, name).await {
                Ok(()) => true,
                Err(error) if error.is_not_found() && !args.fail_not_exist => false,
                Err(error) => return Err(error.into()),
            };
            session.print_value(&json!({ "deleted": deleted }))
        }
        DirectoryCommand::Metadata(MetadataCommand::Show(PathArgs { name, share })) => {
            let found = share.open(session).await?.directory_properties(&share.share_name, &name).await?;
            session.print_value(&json!(found.metadata))
        }
        DirectoryCommand::Metadata(MetadataCommand::Update(args)) => {
            let PathArgs { name, share } = &args.directory;
            let files = share.open(session).await?;
            Ok(files.set_directory_metadata(&share.share_name, name, &parse_tags(&args.metadata)).await?)
        }
    }
}
