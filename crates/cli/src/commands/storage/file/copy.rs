//! `corro storage file copy`: server-side copies.

use clap::{Args, Subcommand};
use corro_client::FileService;
use corro_model::Timestamp;
use corro_model::storage::sas::{Resource, Sas};

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::file_objects as objects;
use crate::error::CliError;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;

/// Validity of the SAS for a copy from another account.
const SAS_LIFETIME: std::time::Duration = std::time::Duration::from_secs(3600);

#[derive(Subcommand, Debug)]
pub enum CopyCommand {
    /// Copy a file
    #[command(
        after_help = "Example:\n  corro storage file copy start --account-name mystorageaccount \\\n      --source-share myshare --source-path cifar/model.h5 \\\n      --destination-share archive --destination-path model.h5"
    )]
    Start(Box<StartArgs>),
    /// Cancel a pending copy. An empty file remains
    Cancel(CancelArgs),
}

#[derive(Args, Debug)]
struct DestinationArgs {
    /// Share to copy to. It must exist
    #[arg(long, short = 's', value_name = "SHARE")]
    destination_share: String,
    /// Path of the copy
    #[arg(long, short = 'p', value_name = "PATH")]
    destination_path: String,
    #[command(flatten)]
    account: AccountArgs,
}

const SOURCE: &str = "Copy Source Arguments";

#[derive(Args, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Metadata of the copy, as KEY=VALUE pairs separated by spaces [default: the metadata of the source]
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// URL of the source file, instead of the other source arguments. It must be on the same server
    #[arg(long, short = 'u', help_heading = SOURCE, value_name = "URL")]
    source_uri: Option<String>,
    /// Storage account of the source [default: the account of the destination]
    #[arg(long, help_heading = SOURCE, value_name = "ACCOUNT")]
    source_account_name: Option<String>,
    /// Key of the source account [default: looked up on the server]
    #[arg(long, help_heading = SOURCE, value_name = "KEY")]
    source_account_key: Option<String>,
    /// Shared access signature (SAS) for the source, instead of a key
    #[arg(long, help_heading = SOURCE, value_name = "TOKEN")]
    source_sas: Option<String>,
    /// Share to copy from [default: the destination share]
    #[arg(long, help_heading = SOURCE, value_name = "SHARE")]
    source_share: Option<String>,
    /// Path of the file to copy
    #[arg(long, help_heading = SOURCE, value_name = "PATH")]
    source_path: Option<String>,
    /// Snapshot of the source share to copy from
    #[arg(long, help_heading = SOURCE, value_name = "TIME")]
    file_snapshot: Option<String>,
}

#[derive(Args, Debug)]
pub struct CancelArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Id of the copy, as printed by 'copy start'
    #[arg(long, value_name = "ID")]
    copy_id: String,
}

pub async fn run(session: &Session, command: CopyCommand) -> Result<(), CliError> {
    match command {
        CopyCommand::Start(args) => start(session, *args).await,
        CopyCommand::Cancel(args) => {
            let DestinationArgs { destination_share: share, destination_path: path, account } = &args.destination;
            Ok(auth::open(session, account).await?.abort_copy(share, path, &args.copy_id).await?)
        }
    }
}

async fn start(session: &Session, args: StartArgs) -> Result<(), CliError> {
    let DestinationArgs { destination_share: share, destination_path: path, account } = &args.destination;
    let files = auth::open(session, account).await?;
    let source = source_url(session, &files, &args).await?;
    let copy = files.copy_file(share, path, &source, &parse_tags(&args.metadata)).await?;
    session.print_value(&objects::copy(&copy))
}

/// URL of the source, with a SAS if it is in another account.
async fn source_url(session: &Session, files: &FileService, args: &StartArgs) -> Result<String, CliError> {
    if let Some(uri) = &args.source_uri {
        if args.source_path.is_some() || args.source_share.is_some() {
            return Err(CliError::usage("argument --source-uri: not together with --source-share and --source-path"));
        }
        return Ok(with_query(uri.clone(), args.source_sas.as_deref()));
    }
    let Some(path) = &args.source_path else {
        return Err(CliError::missing_arguments(&["--source-path or --source-uri"], &["--source-path"]));
    };
    let share = args.source_share.as_ref().unwrap_or(&args.destination.destination_share);
    let other = args.source_account_name.as_deref().filter(|name| *name != files.account());
    let Some(other) = other else {
        let url = files.clone().at_snapshot(args.file_snapshot.clone()).url(share, path);
        return Ok(with_query(url, args.source_sas.as_deref()));
    };
    let source = auth::open_named(session, other, args.source_account_key.clone()).await?;
    let source = source.at_snapshot(args.file_snapshot.clone());
    let signature = match &args.source_sas {
        Some(sas) => Some(sas.clone()),
        None => {
            let expiry = Timestamp::from(std::time::SystemTime::now()).plus(SAS_LIFETIME).whole_seconds();
            let sas = Sas { resource: Resource::File, permissions: "r".to_owned(), expiry, ..Sas::default() };
            source.sas_token(sas, share, path)
        }
    };
    Ok(with_query(source.url(share, path), signature.as_deref()))
}

fn with_query(url: String, query: Option<&str>) -> String {
    match query.map(|query| query.trim_start_matches('?')) {
        None => url,
        Some(query) if url.contains('?') => format!("{url}&{query}"),
        Some(query) => format!("{url}?{query}"),
    }
}
