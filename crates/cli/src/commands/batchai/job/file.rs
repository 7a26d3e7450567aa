//! `corro batchai job file`: lists and follows the output files of a job.

mod stream;

use clap::{Args, Subcommand};
use corro_model::batchai::STDOUTERR;

use crate::commands::batchai::job::ParentArgs;
use crate::error::CliError;
use crate::job_follow::output_directory::OutputDirectory;
use crate::output::{Shape, TableKind};
use crate::resource::args::ResourceNames;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum JobFileCommand {
    /// List the files that a job has written, with download links
    #[command(
        after_help = "Example:\n  corro batchai job file list -g batchai.horovod -w batchaidev -e cifar \\\n      -j cifar_distributed --output table"
    )]
    List(ListArgs),
    /// Follow a file while the job writes it, until the job has ended
    #[command(
        after_help = "Example:\n  corro batchai job file stream -g batchai.horovod -w batchaidev -e cifar \\\n      -j cifar_distributed --file-name stdout.txt"
    )]
    Stream(StreamArgs),
}

#[derive(Args, Debug)]
pub struct DirectoryArgs {
    #[command(flatten)]
    job: ParentArgs,
    /// Output directory: stdouterr for the logs, or the id of one of the job's outputDirectories
    #[arg(long, short = 'd', value_name = "ID", default_value = STDOUTERR)]
    output_directory_id: String,
    /// Subdirectory of the output directory
    #[arg(long, short = 'p', value_name = "PATH", default_value = ".")]
    path: String,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// How long the download links are valid, in minutes: 5 to 600
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=600))]
    expiry: u32,
}

#[derive(Args, Debug)]
pub struct StreamArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Name of the file, such as stdout.txt
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    file_name: String,
}

impl DirectoryArgs {
    fn output_directory(&self) -> Result<OutputDirectory, CliError> {
        let (id, path) = (self.output_directory_id.clone(), self.path.clone());
        Ok(OutputDirectory { job: self.job.target()?, id, path })
    }
}

pub async fn run(session: &Session, command: JobFileCommand) -> Result<(), CliError> {
    match command {
        JobFileCommand::List(args) => {
            let directory = args.directory.output_directory()?;
            let files = directory.list(session.client()?, args.expiry).await;
            let files = files.map_err(|error| directory.job.request_error(error))?;
            session.print(Shape::JobFile, Some(TableKind::JobFile), &files)
        }
        JobFileCommand::Stream(args) => {
            stream::run(session, &args.directory.output_directory()?, &args.file_name).await
        }
    }
}
