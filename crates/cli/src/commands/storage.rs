//! `corro storage`: hands over to the group of commands for accounts, shares, directories, files, containers and blobs.

pub mod account;
pub mod auth;
pub mod batch;
pub mod blob;
pub mod blob_objects;
pub mod container;
pub mod directory;
pub mod file;
pub mod file_objects;
pub mod pattern;
pub mod sas;
pub mod share;
pub mod share_args;
pub mod transfer;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct StorageArgs {
    #[command(subcommand)]
    command: StorageCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum StorageCommand {
    /// Manage storage accounts and their keys
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Manage file shares, which jobs can mount
    #[command(subcommand)]
    Share(share::ShareCommand),
    /// Manage directories on a file share
    #[command(subcommand)]
    Directory(directory::DirectoryCommand),
    /// Upload, download and manage files on a file share
    #[command(subcommand)]
    File(file::FileCommand),
    /// Manage blob containers, which jobs can mount
    #[command(subcommand)]
    Container(container::ContainerCommand),
    /// Upload, download and manage blobs in a container
    #[command(subcommand)]
    Blob(blob::BlobCommand),
}

pub async fn run(args: StorageArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    match args.command {
        StorageCommand::Account(command) => account::run(&session, command).await,
        StorageCommand::Share(command) => share::run(&session, command).await,
        StorageCommand::Directory(command) => directory::run(&session, command).await,
        StorageCommand::File(command) => file::run(&session, command).await,
        StorageCommand::Container(command) => container::run(&session, command).await,
        StorageCommand::Blob(command) => blob::run(&session, command).await,
    }
}
