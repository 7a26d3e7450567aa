//! `corro storage`: hands over to the group of commands for accounts, shares, directories, files, containers and blobs.

use clap::{Args, Subcommand};

use super::{storage_account, storage_blob, storage_container, storage_directory, storage_file, storage_share};
use crate::failure::Failure;
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
    /// Storage accounts: hold shares and the keys to them
    #[command(subcommand)]
    Account(storage_account::AccountCommand),
    /// File shares: directory trees that jobs mount
    #[command(subcommand)]
    Share(storage_share::ShareCommand),
    /// Directories on a share
    #[command(subcommand)]
    Directory(storage_directory::DirectoryCommand),
    /// Files on a share: upload scripts, download results
    #[command(subcommand)]
    File(storage_file::FileCommand),
    /// Containers of blobs, which jobs mount too
    #[command(subcommand)]
    Container(storage_container::ContainerCommand),
    /// Blobs in a container
    #[command(subcommand)]
    Blob(storage_blob::BlobCommand),
}

pub async fn run(args: StorageArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    match args.command {
        StorageCommand::Account(command) => storage_account::run(&session, command).await,
        StorageCommand::Share(command) => storage_share::run(&session, command).await,
        StorageCommand::Directory(command) => storage_directory::run(&session, command).await,
        StorageCommand::File(command) => storage_file::run(&session, command).await,
        StorageCommand::Container(command) => storage_container::run(&session, command).await,
        StorageCommand::Blob(command) => storage_blob::run(&session, command).await,
    }
}
