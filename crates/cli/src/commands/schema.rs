//! `corro schema`: the JSON Schema of job files, for editors.

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Subcommand, Debug)]
enum SchemaCommand {
    /// Print the JSON Schema of job files
    ///
    /// Editors complete and check job files with it. A server serves the same schema at /docs/reference/job.schema.json.
    #[command(after_help = "Example:\n  corro schema job > job.schema.json")]
    Job,
}

pub fn run(args: &SchemaArgs) -> Result<(), CliError> {
    match args.command {
        SchemaCommand::Job => print(corro_docs::JOB_SCHEMA.trim_end()),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
