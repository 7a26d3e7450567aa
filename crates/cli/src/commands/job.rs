//! `corro job`: what Batch AI had no commands for. Why a job is as it is (`why`), what its processes use (`top`), how its training goes (`plot`), and
//! running a command beside them (`exec`).

pub mod exec;
pub mod plot;
pub mod timeline;
pub mod top;
pub mod why;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::resource::args::{ExperimentArgs, ResourceNames, with_parent};
use crate::resource::resource_ref::NameArg;

#[derive(Args, Debug)]
pub struct JobArgs {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Subcommand, Debug)]
enum JobCommand {
    /// Say why a job waits, runs, failed or ended, and what would help
    #[command(after_help = "Example:\n  corro job why cifar_distributed -g batchai.horovod -w batchaidev -e cifar")]
    Why(JobNameArgs),
    /// Show what each rank of a running job uses, again and again, until Ctrl-C
    ///
    /// Processor, memory, threads and since when it has written nothing; of ranks that use our Horovod also step, bytes, last collective and how
    /// long they wait for others, with a mark (*) at the one that the others wait for. The nodes measure only while somebody looks.
    #[command(
        after_help = "Examples:\n  corro job top cifar_distributed -g batchai.horovod -w batchaidev -e cifar\n  corro job top cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      -o json --query '[].cpuPercent'"
    )]
    Top(top::TopArgs),
    /// Draw the curves of a training: loss, accuracy and whatever else it prints
    ///
    /// They are found in what the job writes, without a change to its script: progress of Keras, PyTorch's examples and
    /// Lightning, Hugging Face's Trainer, tqdm, lines of name=value or JSON; metrics.jsonl and TensorBoard's event files in output
    /// directories. A script that wants to be exact prints {"corro": {"step": 10, "loss": 0.5}}, with "epoch", "rank" and "time" if
    /// it likes. In a terminal curves are drawn, elsewhere a table is printed.
    #[command(
        after_help = "Examples:\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --follow\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --metric loss,val_loss --ranks average\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --csv > curves.csv"
    )]
    Plot(plot::PlotArgs),
    /// Record what the ranks of a running job do for some seconds, as a trace of Horovod's timeline
    ///
    /// Each rank that uses our Horovod is a process of the trace, each tensor a thread: NEGOTIATE_ is how long a rank waited for the others, the
    /// rest is the operation itself. Perfetto and chrome://tracing show it. The job goes on meanwhile and needs no setting; clocks of
    /// different machines are taken as they are.
    #[command(
        after_help = "Example:\n  corro job timeline cifar_distributed -g batchai.horovod -w batchaidev \\\n      -e cifar --seconds 10 --file trace.json"
    )]
    Timeline(timeline::TimelineArgs),
    /// Run a command beside the processes of a running job, with their directory and variables
    ///
    /// The cluster's administrator logs in, as with 'batchai cluster node exec'. The command sees what the ranks see: their
    /// working directory, their variables (those of one rank with --rank), the job's container if it has one. Secrets are
    /// left out unless --with-secrets asks for them. Its exit code becomes ours.
    #[command(
        after_help = "Examples:\n  corro job exec cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      -- ls -l\n  corro job exec cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --rank 3 -- bash"
    )]
    Exec(exec::ExecArgs),
}

/// A job by its name, as first word or with `-n`.
#[derive(Args, Debug)]
pub struct JobNameArgs {
    /// Name of the job
    #[arg(value_name = "NAME", required_unless_present = "name", conflicts_with = "name")]
    job: Option<String>,
    /// The same, spelled as in other commands
    #[arg(long, short = 'n', value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

impl ResourceNames for JobNameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.experiment, ("job", "NAME", self.job.as_deref().or(self.name.as_deref())))
    }
}

pub async fn run(args: JobArgs) -> Result<ExitCode, CliError> {
    match args.command {
        JobCommand::Why(args) => why::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Top(args) => top::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Timeline(args) => timeline::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Plot(args) => plot::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Exec(args) => exec::run(args).await,
    }
}
