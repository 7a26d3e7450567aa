//! `corro batchai job file`: a job's output.

use clap::{Args, Subcommand};
use corro_client::{Client, ClientError};
use corro_model::batchai::{OutputFile, STDOUTERR};
use corro_model::ops::JobsListOutputFiles;

use crate::commands::batchai::job::ParentArgs;
use crate::commands::batchai::job::stream;
use crate::commands::resource_args::Names;
use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum JobFileCommand {
    /// List the files a job has written, with links to download them
    #[command(
        after_help = "Example:\n  corro batchai job file list -g batchai.horovod -w batchaidev -e cifar \\\n      -j cifar_distributed --output table"
    )]
    List(ListArgs),
    /// Follow a file as the job writes it; ends after the job's last byte
    #[command(
        after_help = "Example:\n  corro batchai job file stream -g batchai.horovod -w batchaidev -e cifar \\\n      -j cifar_distributed --file-name stdout.txt"
    )]
    Stream(StreamArgs),
}

#[derive(Args, Debug)]
pub struct DirectoryArgs {
    #[command(flatten)]
    job: ParentArgs,
    /// Output directory: stdouterr for the logs, or an id of the job's outputDirectories
    #[arg(long, short = 'd', value_name = "ID", default_value = STDOUTERR)]
    output_directory_id: String,
    /// Directory below it
    #[arg(long, short = 'p', value_name = "PATH", default_value = ".")]
    path: String,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Minutes the download links are good for, 5 to 600
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=600))]
    expiry: u32,
}

#[derive(Args, Debug)]
pub struct StreamArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Name of the file
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    file_name: String,
}

/// A directory of a job's output.
pub struct OutputDirectory {
    pub job: Target,
    id: String,
    path: String,
}

impl OutputDirectory {
    fn new(args: &DirectoryArgs) -> Result<OutputDirectory, Failure> {
        Ok(OutputDirectory { job: args.job.target()?, id: args.output_directory_id.clone(), path: args.path.clone() })
    }

    pub async fn list(&self, client: &Client, expiry: u32) -> Result<Vec<OutputFile>, ClientError> {
        let expiry = expiry.to_string();
        let query = [
            ("outputdirectoryid", self.id.as_str()),
            ("directory", self.path.as_str()),
            ("linkexpiryinminutes", expiry.as_str()),
            ("maxresults", "1000"),
        ];
        client.list::<JobsListOutputFiles, _>(&self.job.values(), &query).await
    }
}

pub async fn run(session: &Session, command: JobFileCommand) -> Result<(), Failure> {
    match command {
        JobFileCommand::List(args) => {
            let directory = OutputDirectory::new(&args.directory)?;
            let files = directory.list(session.client()?, args.expiry).await;
            let files = files.map_err(|error| directory.job.failure(error))?;
            session.print(Shape::JobFile, Some(TableKind::JobFile), &files)
        }
        JobFileCommand::Stream(args) => {
            stream::stream(session, &OutputDirectory::new(&args.directory)?, &args.file_name).await
        }
    }
}
