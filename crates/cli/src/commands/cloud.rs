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
    /// Print the steps that configure the Azure CLI (az) for this server, or perform or undo them
    #[command(
        after_help = "Examples:\n  corro cloud setup-az            # print all steps\n  corro cloud setup-az --write    # perform them; repeat for new accounts\n  corro cloud setup-az --undo     # restore all files\n\nThe server must use TLS: start it with 'corro up --tls'."
    )]
    SetupAz(setup_az::SetupAzArgs),
}

pub async fn run(args: CloudArgs) -> Result<(), CliError> {
    let CloudCommand::SetupAz(args) = args.command;
    setup_az::run(args).await
}
