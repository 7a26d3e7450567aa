//! `corro storage share`: file shares.

use clap::{Args, Subcommand};
use corro_client::files::{ShareFilter, ShareProperties};
use corro_model::storage::sas::Resource;
use serde_json::json;

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::file_objects as objects;
use crate::commands::storage::sas::{self, ProtocolArgs, SasArgs};
use crate::error::CliError;
use crate::output::TableKind;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ShareCommand {
    /// Create a file share
    #[command(after_help = "Example:\n  corro storage share create --name myshare --account-name mystorageaccount")]
    Create(CreateArgs),
    /// List the shares of an account
    List(ListArgs),
    /// Show a share
    Show(ShareArgs),
    /// Delete a share and its files
    Delete(DeleteArgs),
    /// Check whether a share exists
    Exists(ShareArgs),
    /// Show the used space of a share, in GiB
    Stats(ShareArgs),
    /// Create a snapshot of a share. Other commands use it with --snapshot
    #[command(
        after_help = "Example:\n  corro storage share snapshot --name myshare \\\n      --account-name mystorageaccount --query snapshot -o tsv"
    )]
    Snapshot(DescribeArgs),
    /// Change the quota of a share
    Update(UpdateArgs),
    /// Show or replace the metadata of a share
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Print the URL of a share
    Url(UrlArgs),
    /// Generate a shared access signature for a share
    #[command(
        after_help = "Example:\n  corro storage share generate-sas --name myshare \\\n      --account-name mystorageaccount \\\n      --permissions rl --expiry 2030-01-01T00:00Z"
    )]
    GenerateSas(Box<GenerateSasArgs>),
}

#[derive(Subcommand, Debug)]
pub enum MetadataCommand {
    /// Show the metadata
    Show(ShareArgs),
    /// Replace all metadata
    Update(DescribeArgs),
}

#[derive(Args, Debug)]
pub struct ShareArgs {
    /// Name of the share
    #[arg(long, short = 'n', visible_alias = "share-name", value_name = "SHARE")]
    name: String,
    /// Use this snapshot of the share, instead of its current content
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Name of the share
    #[arg(long, short = 'n', value_name = "SHARE")]
    name: String,
    /// Quota, in GiB [default: the size of the disk]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..=102_400))]
    quota: Option<u32>,
    /// Fail if the share already exists
    #[arg(long)]
    fail_on_exist: bool,
    /// Metadata of the share, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only shares whose names begin with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Maximum number of results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    num_results: Option<u32>,
    /// Show the metadata of each
    #[arg(long)]
    include_metadata: bool,
    /// List the snapshots too
    #[arg(long)]
    include_snapshots: bool,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// Delete the snapshots too. Required if the share has snapshots
    #[arg(long, value_name = "WHAT", value_parser = ["include"])]
    delete_snapshots: Option<String>,
    /// Fail if the share does not exist
    #[arg(long)]
    fail_not_exist: bool,
}

#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// Name of the share
    #[arg(long, short = 'n', visible_alias = "share-name", value_name = "SHARE")]
    name: String,
    /// Metadata of the share, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Name of the share
    #[arg(long, short = 'n', visible_alias = "share-name", value_name = "SHARE")]
    name: String,
    /// Quota, in GiB
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..=102_400))]
    quota: u32,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct UrlArgs {
    #[command(flatten)]
    share: ShareArgs,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

#[derive(Args, Debug)]
pub struct GenerateSasArgs {
    #[command(flatten)]
    share: ShareArgs,
    #[command(flatten)]
    sas: SasArgs,
}

pub async fn run(session: &Session, command: ShareCommand) -> Result<(), CliError> {
    match command {
        ShareCommand::Create(args) => create(session, args).await,
        ShareCommand::List(args) => list(session, args).await,
        ShareCommand::Show(args) => {
            let files = args.open(session).await?;
            let about = files.share_properties(&args.name).await.map_err(CliError::from_show)?;
            let shown = objects::share_show(&args.name, args.snapshot.as_deref(), &about);
            session.print_shaped(&shown, Some(TableKind::Share))
        }
        ShareCommand::Delete(args) => delete(session, args).await,
        ShareCommand::Exists(args) => {
            let found = args.open(session).await?.share_properties(&args.name).await;
            session.print_value(&json!({"exists": auth::exists_result(found)?}))
        }
        ShareCommand::Stats(args) => {
            let gib = args.open(session).await?.share_usage_gib(&args.name).await?;
            session.print_value(&gib.into())
        }
        ShareCommand::Snapshot(args) => snapshot(session, args).await,
        ShareCommand::Update(args) => {
            let files = auth::open_share(session, &args.account, &args.name).await?;
            Ok(files.set_share_quota(&args.name, args.quota).await?)
        }
        ShareCommand::Metadata(MetadataCommand::Show(args)) => {
            let about = args.open(session).await?.share_properties(&args.name).await?;
            session.print_value(&json!(about.properties.metadata))
        }
        ShareCommand::Metadata(MetadataCommand::Update(args)) => {
            let files = auth::open_share(session, &args.account, &args.name).await?;
            Ok(files.set_share_metadata(&args.name, &parse_tags(&args.metadata)).await?)
        }
        ShareCommand::Url(args) => {
            let url = args.share.open(session).await?.url(&args.share.name, "");
            session.print_value(&args.protocol.apply(url).into())
        }
        ShareCommand::GenerateSas(args) => {
            let files = args.share.open(session).await?;
            sas::print(session, &files, &args.sas, Resource::Share, (&args.share.name, ""))
        }
    }
}

impl ShareArgs {
    async fn open(&self, session: &Session) -> Result<corro_client::FileService, CliError> {
        Ok(auth::open_share(session, &self.account, &self.name).await?.at_snapshot(self.snapshot.clone()))
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let files = auth::open_share(session, &args.account, &args.name).await?;
    let created = files.create_share(&args.name, args.quota, &parse_tags(&args.metadata)).await?;
    if !created && args.fail_on_exist {
        return Err(CliError::new(format!("The share \"{}\" already exists.", args.name)));
    }
    session.print_value(&json!({ "created": created }))
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    let files = auth::open(session, &args.account).await?;
    let filter = ShareFilter {
        prefix: args.prefix,
        metadata: args.include_metadata,
        snapshots: args.include_snapshots,
        limit: args.num_results.map(|n| n as usize),
    };
    let mut shown: Vec<_> = files.list_shares(&filter).await?.iter().map(objects::share).collect();
    if !filter.metadata {
        // Metadata that was not requested is null, not empty.
        shown.iter_mut().for_each(|share| share["metadata"] = serde_json::Value::Null);
    }
    session.print_shaped(&shown.into(), Some(TableKind::Share))
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), CliError> {
    let files = args.share.open(session).await?;
    let deleted = match files.delete_share(&args.share.name, args.delete_snapshots.is_some()).await {
        Ok(()) => true,
        Err(error) if error.is_not_found() && !args.fail_not_exist => false,
        Err(error) if error.api().is_some_and(|api| api.code == "ShareHasSnapshots") => {
            return Err(CliError::new(format!("The share \"{}\" has snapshots.", args.share.name))
                .hint("delete them too with --delete-snapshots include"));
        }
        Err(error) => return Err(error.into()),
    };
    session.print_value(&json!({ "deleted": deleted }))
}

async fn snapshot(session: &Session, args: DescribeArgs) -> Result<(), CliError> {
    let files = auth::open_share(session, &args.account, &args.name).await?;
    let metadata = parse_tags(&args.metadata);
    let (id, mut properties) = files.snapshot_share(&args.name, &metadata).await?;
    properties.metadata = metadata;
    let about = ShareProperties { properties, quota_gib: None };
    session.print_shaped(&objects::share_object(&args.name, Some(&id), &about), Some(TableKind::Share))
}
