//! `corro cloud`: lets the real `az` use this server.

mod setup_az;

use clap::{Args, Subcommand};

use crate::error::CliError;

#[derive(Args, Debug)]
pub struct CloudArgs {
    #[command(subcommand)]
    command: CloudCommand,
}

#[derive(Subcommand, Debug)]
enum CloudCommand {
    /// Configure the real az for this server, show the steps, or undo them
    #[command(
        after_help = "Examples:\n  corro cloud setup-az            # show every step\n  corro cloud setup-az --write    # do them; again after new storage accounts\n  corro cloud setup-az --undo     # restore every file\n\nThe server must serve TLS: 'corro up --tls'."
    )]
    SetupAz(setup_az::SetupAzArgs),
}

pub async fn run(args: CloudArgs) -> Result<(), CliError> {
    let CloudCommand::SetupAz(args) = args.command;
    setup_az::run(args).await
}
