//! `corro ad`: service principals.

pub mod sp;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct AdArgs {
    #[command(subcommand)]
    command: AdCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AdCommand {
    /// Manage service principals: logins for users and programs
    #[command(subcommand)]
    Sp(sp::SpCommand),
}

pub async fn run(args: AdArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let AdCommand::Sp(command) = args.command;
    sp::run(&session, command).await
}
