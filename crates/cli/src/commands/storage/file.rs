//! `corro storage file`: the commands of single requests. Uploads, downloads and copies are in the files of their names, batches in
//! `storage::batch`.

pub mod copy;
mod download;
mod upload;

use clap::{Args, Subcommand};
use corro_client::files::{ContentSettings, Entry};
use corro_model::storage::sas::Resource;
use serde_json::{Value, json};

use crate::commands::storage::auth;
use crate::commands::storage::batch::{self, DeleteBatchArgs, DownloadBatchArgs, Tree, UploadBatchArgs};
use crate::commands::storage::file_objects as objects;
use crate::commands::storage::sas::{self, ProtocolArgs, SasArgs};
use crate::commands::storage::share_args::ShareArgs;
use crate::commands::storage::transfer::{ContentArgs, directory_error_or};
use crate::error::CliError;
use crate::output::TableKind;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;
use copy::CopyCommand;
use download::DownloadArgs;
use upload::UploadArgs;

#[derive(Subcommand, Debug)]
pub enum FileCommand {
    /// Upload a file to a share
    #[command(
        after_help = "If the last part of --path has no dot, it is a directory, and the file keeps its name.\n\nExample:\n  corro storage file upload --share-name myshare --path cifar \\\n      --source train.py --account-name mystorageaccount"
    )]
    Upload(Box<UploadArgs>),
    /// Download a file from a share
    #[command(
        after_help = "Example:\n  corro storage file download --share-name myshare \\\n      --path cifar/saved_models/model.h5 --account-name mystorageaccount"
    )]
    Download(DownloadArgs),
    /// Upload a directory with all its subdirectories
    #[command(
        after_help = "Example:\n  corro storage file upload-batch --source data --destination myshare \\\n      --destination-path cifar --pattern '*.bin' \\\n      --account-name mystorageaccount"
    )]
    UploadBatch(Box<UploadBatchArgs>),
    /// Download the files of a share, or of one of its directories
    #[command(
        after_help = "Example:\n  corro storage file download-batch --source myshare --destination results \\\n      --pattern 'cifar/saved_models/*' --account-name mystorageaccount"
    )]
    DownloadBatch(DownloadBatchArgs),
    /// Delete the files of a share, or of one of its directories
    DeleteBatch(DeleteBatchArgs),
    /// List the files and directories in a directory of a share
    List(ListArgs),
    /// Show a file
    Show(PathArgs),
    /// Check whether a file exists
    Exists(PathArgs),
    /// Delete a file
    Delete(PathArgs),
    /// Change the size of a file. New bytes are zero
    Resize(ResizeArgs),
    /// Change the content settings of a file, such as its MIME type
    Update(Box<UpdateArgs>),
    /// Copy files on the server, without downloading them
    #[command(subcommand)]
    Copy(CopyCommand),
    /// Show or replace the metadata of a file
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Print the URL of a file
    Url(UrlArgs),
    /// Generate a shared access signature for a file
    #[command(
        after_help = "Example:\n  corro storage file generate-sas --share-name myshare --path cifar/model.h5 \\\n      --account-name mystorageaccount \\\n      --permissions r --expiry 2030-01-01T00:00Z"
    )]
    GenerateSas(Box<GenerateSasArgs>),
}

#[derive(Subcommand, Debug)]
pub enum MetadataCommand {
    /// Show the metadata
    Show(PathArgs),
    /// Replace all metadata
    Update(DescribeArgs),
}

#[derive(Args, Debug)]
pub struct PathArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// Path of the file on the share
    #[arg(long, short = 'p', value_name = "PATH")]
    path: String,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// Directory to list [default: the root of the share]
    #[arg(long, short = 'p', value_name = "PATH", default_value = "", hide_default_value = true)]
    path: String,
    /// Maximum number of results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    num_results: Option<u32>,
    /// List files only
    #[arg(long)]
    exclude_dir: bool,
}

#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    file: PathArgs,
    /// New size, in bytes
    #[arg(long, value_name = "BYTES")]
    size: u64,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    file: PathArgs,
    /// Clear all settings that are not given, instead of keeping them
    #[arg(long)]
    clear_content_settings: bool,
    #[command(flatten)]
    content: ContentArgs,
}

#[derive(Args, Debug)]
pub struct DescribeArgs {
    #[command(flatten)]
    file: PathArgs,
    /// Metadata of the file, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

#[derive(Args, Debug)]
pub struct UrlArgs {
    #[command(flatten)]
    file: PathArgs,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

#[derive(Args, Debug)]
pub struct GenerateSasArgs {
    #[command(flatten)]
    file: PathArgs,
    #[command(flatten)]
    sas: SasArgs,
}

pub async fn run(session: &Session, command: FileCommand) -> Result<(), CliError> {
    match command {
        FileCommand::Upload(args) => upload::run(session, *args).await,
        FileCommand::Download(args) => download::run(session, args).await,
        FileCommand::UploadBatch(args) => batch::upload(session, *args, Tree::Share).await,
        FileCommand::DownloadBatch(args) => batch::download(session, args, Tree::Share).await,
        FileCommand::DeleteBatch(args) => batch::delete(session, args, Tree::Share).await,
        FileCommand::Copy(command) => copy::run(session, command).await,
        FileCommand::List(args) => list(session, args).await,
        FileCommand::Show(PathArgs { share, path }) => {
            let files = share.open(session).await?;
            let found = match files.file_properties(&share.share_name, &path).await {
                Ok(found) => found,
                Err(error) => {
                    let hint = "show it with 'corro storage directory show'";
                    let error = CliError::from_show(error);
                    return Err(directory_error_or(&files, (&share.share_name, &path), error, hint).await);
                }
            };
            session.print_shaped(&objects::file(&path, &found), None)
        }
        FileCommand::Exists(PathArgs { share, path }) => {
            let found = share.open(session).await?.file_properties(&share.share_name, &path).await;
            session.print_value(&json!({"exists": auth::exists_result(found)?}))
        }
        FileCommand::Delete(PathArgs { share, path }) => {
            let files = share.open(session).await?;
            if let Err(error) = files.delete_file(&share.share_name, &path).await {
                let hint = "delete it with 'corro storage directory delete' once it is empty, \
                            or the files in it with 'corro storage file delete-batch'";
                let error = CliError::from(error);
                return Err(directory_error_or(&files, (&share.share_name, &path), error, hint).await);
            }
            // `az` prints the result of the SDK's call, which is nothing.
            session.print_value(&json!({"deleted": null}))
        }
        FileCommand::Resize(ResizeArgs { file: PathArgs { share, path }, size }) => {
            Ok(share.open(session).await?.resize_file(&share.share_name, &path, size).await?)
        }
        FileCommand::Update(args) => update(session, *args).await,
        FileCommand::Metadata(MetadataCommand::Show(PathArgs { share, path })) => {
            let found = share.open(session).await?.file_properties(&share.share_name, &path).await?;
            session.print_value(&json!(found.properties.metadata))
        }
        FileCommand::Metadata(MetadataCommand::Update(args)) => {
            let PathArgs { share, path } = &args.file;
            let files = share.open(session).await?;
            Ok(files.set_file_metadata(&share.share_name, path, &parse_tags(&args.metadata)).await?)
        }
        FileCommand::Url(UrlArgs { file: PathArgs { share, path }, protocol }) => {
            let url = share.open(session).await?.url(&share.share_name, &path);
            session.print_value(&protocol.apply(url).into())
        }
        FileCommand::GenerateSas(args) => {
            let PathArgs { share, path } = &args.file;
            let files = share.open(session).await?;
            sas::print(session, &files, &args.sas, Resource::File, (&share.share_name, path))
        }
    }
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    let files = args.share.open(session).await?;
    let limit = args.num_results.map(|n| n as usize);
    // With --exclude-dir the number of entries to request is not known.
    let max_entries = limit.filter(|_| !args.exclude_dir);
    let mut entries = files.list_some(&args.share.share_name, &args.path, max_entries).await?;
    // The Azure SDK returns the files of a listing before the directories.
    entries.sort_by_key(|entry| matches!(entry, Entry::Directory { .. }));
    let listed: Vec<Value> = entries
        .iter()
        .filter(|entry| !(args.exclude_dir && matches!(entry, Entry::Directory { .. })))
        .take(limit.unwrap_or(usize::MAX))
        .map(objects::entry)
        .collect();
    session.print_shaped(&listed.into(), Some(TableKind::ShareEntry))
}

/// Changes content settings. The service replaces all of them at once, so the others are read first.
async fn update(session: &Session, args: UpdateArgs) -> Result<(), CliError> {
    let PathArgs { share, path } = &args.file;
    let files = share.open(session).await?;
    let given = args.content.into_settings();
    let old = match args.clear_content_settings {
        true => ContentSettings::default(),
        false => files.file_properties(&share.share_name, path).await?.content,
    };
    let content = ContentSettings {
        content_type: given.content_type.or(old.content_type),
        encoding: given.encoding.or(old.encoding),
        language: given.language.or(old.language),
        disposition: given.disposition.or(old.disposition),
        cache_control: given.cache_control.or(old.cache_control),
        md5: given.md5.or(old.md5),
    };
    Ok(files.set_content(&share.share_name, path, content).await?)
}
