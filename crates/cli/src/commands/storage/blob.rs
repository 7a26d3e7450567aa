//! `corro storage blob`: single blobs of a container. Batches are in `storage::batch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::FileService;
use corro_client::files::{BlobFilter, Destination, DownloadRange};
use corro_model::storage::sas::Resource;
use serde_json::{Value, json};

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::batch::{self, DeleteBatchArgs, DownloadBatchArgs, Tree, UploadBatchArgs};
use crate::commands::storage::blob_objects as objects;
use crate::commands::storage::sas::{self, ProtocolArgs, SasArgs};
use crate::commands::storage::transfer::{FileSettingsArgs, INTERRUPTED, TransferArgs, run_transfer};
use crate::error::CliError;
use crate::output::TableKind;
use crate::progress::TransferBar;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum BlobCommand {
    /// Upload a file to a container
    #[command(
        after_help = "Example:\n  corro storage blob upload --container-name data --name cifar/train.bin \\\n      --file train.bin --account-name mystorageaccount"
    )]
    Upload(Box<UploadArgs>),
    /// Download a blob to a file
    #[command(
        after_help = "Example:\n  corro storage blob download --container-name data --name cifar/train.bin \\\n      --file train.bin --account-name mystorageaccount"
    )]
    Download(DownloadArgs),
    /// Upload a directory with all its subdirectories
    UploadBatch(Box<UploadBatchArgs>),
    /// Download the blobs of a container
    DownloadBatch(DownloadBatchArgs),
    /// Delete the blobs of a container
    DeleteBatch(DeleteBatchArgs),
    /// List the blobs of a container
    List(ListArgs),
    /// Show a blob
    Show(BlobArgs),
    /// Check whether a blob exists
    Exists(BlobArgs),
    /// Delete a blob
    Delete(BlobArgs),
    /// Print the URL of a blob
    Url(UrlArgs),
    /// Generate a shared access signature for a blob
    #[command(
        after_help = "Example:\n  corro storage blob generate-sas --container-name data \\\n      --name cifar/train.bin --account-name mystorageaccount \\\n      --permissions r --expiry 2030-01-01T00:00Z"
    )]
    GenerateSas(Box<GenerateSasArgs>),
}

#[derive(Args, Debug)]
pub struct ContainerArgs {
    /// Name of the container
    #[arg(long, short = 'c', value_name = "CONTAINER")]
    container_name: String,
    #[command(flatten)]
    account: AccountArgs,
}

impl ContainerArgs {
    async fn open(&self, session: &Session) -> Result<FileService, CliError> {
        auth::open_container(session, &self.account, &self.container_name).await
    }
}

#[derive(Args, Debug)]
pub struct BlobArgs {
    #[command(flatten)]
    container: ContainerArgs,
    /// Name of the blob. Slashes become directories when a job mounts the container
    #[arg(long, short = 'n', value_name = "NAME")]
    name: String,
}

impl BlobArgs {
    fn container_and_name(&self) -> (&str, &str) {
        (&self.container.container_name, &self.name)
    }
}

#[derive(Args, Debug)]
pub struct UploadArgs {
    #[command(flatten)]
    blob: BlobArgs,
    /// Local file to upload
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Type of the blob. Only block blobs are supported
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "block", value_parser = ["block"])]
    _kind: String,
    #[command(flatten)]
    settings: FileSettingsArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args, Debug)]
pub struct DownloadArgs {
    #[command(flatten)]
    blob: BlobArgs,
    /// Local file to write to
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Offset of the first byte to download
    #[arg(long, value_name = "BYTE")]
    start_range: Option<u64>,
    /// Offset of the last byte to download
    #[arg(long, value_name = "BYTE")]
    end_range: Option<u64>,
    /// What to do if the local file exists: wb replaces it, ab appends to it, xb fails
    #[arg(long, value_name = "MODE", default_value = "wb", value_parser = ["wb", "ab", "xb"])]
    open_mode: String,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    container: ContainerArgs,
    /// List only blobs whose names begin with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Group names at this delimiter, such as /
    #[arg(long, value_name = "TEXT")]
    delimiter: Option<String>,
    /// Additional data to show: m for metadata
    #[arg(long, value_name = "LETTERS", value_parser = ["m"])]
    include: Option<String>,
    /// Maximum number of results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    num_results: Option<u32>,
}

#[derive(Args, Debug)]
pub struct UrlArgs {
    #[command(flatten)]
    blob: BlobArgs,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

#[derive(Args, Debug)]
pub struct GenerateSasArgs {
    #[command(flatten)]
    blob: BlobArgs,
    #[command(flatten)]
    sas: SasArgs,
}

pub async fn run(session: &Session, command: BlobCommand) -> Result<(), CliError> {
    match command {
        BlobCommand::Upload(args) => upload(session, *args).await,
        BlobCommand::Download(args) => download(session, args).await,
        BlobCommand::UploadBatch(args) => batch::upload(session, *args, Tree::Container).await,
        BlobCommand::DownloadBatch(args) => batch::download(session, args, Tree::Container).await,
        BlobCommand::DeleteBatch(args) => batch::delete(session, args, Tree::Container).await,
        BlobCommand::List(args) => list(session, args).await,
        BlobCommand::Show(args) => {
            let (container, name) = args.container_and_name();
            let found = args.container.open(session).await?.file_properties(container, name).await;
            session.print_shaped(&objects::blob(name, &found.map_err(CliError::from_show)?), Some(TableKind::Blob))
        }
        BlobCommand::Exists(args) => {
            let (container, name) = args.container_and_name();
            let found = args.container.open(session).await?.file_properties(container, name).await;
            session.print_value(&json!({"exists": auth::exists_result(found)?}))
        }
        BlobCommand::Delete(args) => {
            let (container, name) = args.container_and_name();
            args.container.open(session).await?.delete_file(container, name).await?;
            // `az` prints the result of the SDK's call, which is null.
            session.print_value(&json!({"deleted": null}))
        }
        BlobCommand::Url(UrlArgs { blob, protocol }) => {
            let (container, name) = blob.container_and_name();
            let url = blob.container.open(session).await?.url(container, name);
            session.print_value(&protocol.apply(url).into())
        }
        BlobCommand::GenerateSas(args) => {
            let blobs = args.blob.container.open(session).await?;
            sas::print(session, &blobs, &args.sas, Resource::Blob, args.blob.container_and_name())
        }
    }
}

async fn upload(session: &Session, args: UploadArgs) -> Result<(), CliError> {
    let (container, name) = args.blob.container_and_name();
    if !args.file.is_file() {
        let failure = CliError::new(format!("there is no file {} to upload", args.file.display()));
        return Err(match args.file.is_dir() {
            true => failure.hint("upload the files of a directory with 'corro storage blob upload-batch'"),
            false => failure.hint("give the path of a file on this machine with --file"),
        });
    }
    let blobs = args.blob.container.open(session).await?.validating(args.transfer.validate_content);
    let settings = args.settings.into_settings();
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let connections = args.transfer.max_connections.into();
    let upload = blobs.upload_blob((container, name), &args.file, &settings, connections, &progress);
    match run_transfer(upload, &bar).await {
        Err(failure) if failure.exit == INTERRUPTED => {
            let message = format!("the upload was stopped: {name} in the container is as it was");
            return Err(CliError { exit: INTERRUPTED, ..CliError::new(message) });
        }
        other => other?,
    }
    let found = blobs.file_properties(container, name).await?;
    session.print_shaped(&objects::uploaded(&found), None)
}

async fn download(session: &Session, args: DownloadArgs) -> Result<(), CliError> {
    let (container, name) = args.blob.container_and_name();
    if args.open_mode.starts_with('x') && args.file.exists() {
        return Err(CliError::new(format!("{} exists already", args.file.display())).hint("leave --open-mode out"));
    }
    if args.file.is_dir() {
        return Err(CliError::new(format!("{} is a directory", args.file.display()))
            .hint("give the file to write to, or use 'corro storage blob download-batch'"));
    }
    let blobs = args.blob.container.open(session).await?.validating(args.transfer.validate_content);
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let range = DownloadRange { start: args.start_range.unwrap_or(0), end: args.end_range };
    let connections = args.transfer.max_connections.into();
    let to = Destination { path: &args.file, append: args.open_mode.starts_with('a') };
    let download = blobs.download(container, name, range, to, connections, &progress);
    let download = run_transfer(download, &bar).await?;
    session.print_shaped(&objects::downloaded(name, &download), Some(TableKind::Blob))
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    let blobs = args.container.open(session).await?;
    let filter = BlobFilter {
        prefix: args.prefix,
        delimiter: args.delimiter,
        metadata: args.include.is_some(),
        limit: args.num_results.map(|n| n as usize),
    };
    let mut found = blobs.list_blobs(&args.container.container_name, &filter).await?;
    // The Azure SDK returns the prefixes of a listing before the blobs.
    found.sort_by_key(|entry| matches!(entry, corro_client::files::BlobEntry::Blob(_)));
    let listed: Vec<Value> = found.iter().map(|entry| objects::entry(entry, filter.metadata)).collect();
    session.print_shaped(&listed.into(), Some(TableKind::Blob))
}
