//! `corro job`: commands that Batch AI did not have: explain a job (`why`), its processes (`top`), its metrics (`plot`), a trace of its collectives
//! (`timeline`), commands in its environment (`exec`), and a check of its file (`validate`).

pub mod exec;
pub mod plot;
pub mod timeline;
pub mod top;
pub mod validate;
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
    /// Explain why a job is waiting, running, failed or ended, and what to do
    #[command(after_help = "Example:\n  corro job why cifar_distributed -g batchai.horovod -w batchaidev -e cifar")]
    Why(JobNameArgs),
    /// Show the resource usage of each rank of a running job, until Ctrl-C
    ///
    /// For each rank it shows CPU, memory, threads and the time since the last output. For ranks that use Corro's Horovod it
    /// also shows the step, the bytes, the last collective and how long the rank waits for others. An asterisk (*) marks the
    /// slowest rank. Nodes measure only while this command runs.
    #[command(
        after_help = "Examples:\n  corro job top cifar_distributed -g batchai.horovod -w batchaidev -e cifar\n  corro job top cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      -o json --query '[].cpuPercent'"
    )]
    Top(top::TopArgs),
    /// Plot the metrics of a job, such as loss and accuracy
    ///
    /// The metrics are extracted from the job's output, without changes to its script. These formats are read: the progress
    /// output of Keras, PyTorch's examples, Lightning, Hugging Face's Trainer and tqdm; lines of name=value or JSON; and
    /// metrics.jsonl and TensorBoard event files in output directories. A script can also print {"corro": {"step": 10,
    /// "loss": 0.5}}, optionally with "epoch", "rank" and "time". On a terminal the metrics are drawn as curves, otherwise
    /// printed as a table.
    #[command(
        after_help = "Examples:\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --follow\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --metric loss,val_loss --ranks average\n  corro job plot cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --csv > curves.csv"
    )]
    Plot(plot::PlotArgs),
    /// Record a Horovod timeline of a running job
    ///
    /// Open the timeline in Perfetto or chrome://tracing. Each rank that uses Corro's Horovod is a process of the trace, and
    /// each tensor a thread. NEGOTIATE_ is the time that a rank waited for the others; the rest is the operation itself. The
    /// job needs no settings and continues while it is recorded. Clocks of different machines are not adjusted.
    #[command(
        after_help = "Example:\n  corro job timeline cifar_distributed -g batchai.horovod -w batchaidev \\\n      -e cifar --seconds 10 --file trace.json"
    )]
    Timeline(timeline::TimelineArgs),
    /// Run a command in the environment of a running job
    ///
    /// The command runs with the working directory and environment variables of the ranks, in the job's container if it has
    /// one. Secrets are left out unless --with-secrets is given. The exit code of the command becomes the exit code of 'corro
    /// job exec'. You log in as the cluster's administrator, as with 'corro batchai cluster node exec'.
    #[command(
        after_help = "Examples:\n  corro job exec cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      -- ls -l\n  corro job exec cifar_distributed -g batchai.horovod -w batchaidev -e cifar \\\n      --rank 3 -- bash"
    )]
    Exec(exec::ExecArgs),
    /// Check a job file without a server
    ///
    /// Errors and warnings name line and column. The exit code is 0 if 'corro batchai job create' would accept the file, also
    /// with warnings, and 1 otherwise. Clusters, storage accounts and shares are not looked up.
    #[command(after_help = "Examples:\n  corro job validate job.json\n  corro job validate job.yaml --strict")]
    Validate(validate::ValidateArgs),
}

/// Arguments that name a job, positional or with `-n`.
#[derive(Args, Debug)]
pub struct JobNameArgs {
    /// Name of the job
    #[arg(value_name = "NAME", required_unless_present = "name", conflicts_with = "name")]
    job: Option<String>,
    /// Name of the job, instead of the NAME argument
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
        JobCommand::Validate(args) => validate::run(&args).map(|()| ExitCode::SUCCESS),
    }
}
