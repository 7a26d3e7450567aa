//! `corro job`: the short commands for jobs, which find names themselves and print text (`list`, `show`, `logs`, `stop` and others), and commands that Batch
//! AI did not have: explain a job (`why`), its processes (`top`), its metrics (`plot`), a trace of its collectives (`timeline`), commands in its
//! environment (`exec`), its ports (`port-forward`), and a check of its file (`validate`).

mod delete;
pub mod exec;
mod list;
mod logs;
mod open;
pub mod plot;
mod port_forward;
mod shell;
mod show;
mod stop;
pub mod timeline;
pub mod top;
pub mod validate;
mod wait;
pub mod why;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::commands::fetch;
use crate::error::CliError;
use crate::resource::short_names::RecentJobArgs;

#[derive(Args, Debug)]
pub struct JobArgs {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Subcommand, Debug)]
enum JobCommand {
    /// List jobs, newest first, with what they wait for and why they failed
    #[command(
        after_help = "Examples:\n  corro job list\n  corro job list --state queued,running --all\n  corro job list -e cifar -o json --query '[].name'"
    )]
    List(list::ListArgs),
    /// Show a job: its state, where it runs, and what to look at next
    #[command(
        after_help = "Examples:\n  corro job show\n  corro job show train-1\n  corro job show cifar/train-1 -o json"
    )]
    Show(show::ShowArgs),
    /// Print the output of a job, or follow it until the job ends
    ///
    /// Standard output and standard error of the ranks go to those of this command. Where each rank has its own files, its number is
    /// before each line.
    #[command(
        after_help = "Examples:\n  corro job logs train-1\n  corro job logs train-1 --follow --tail 20\n  corro job logs train-1 --rank 3\n  corro job logs train-1 --stderr | grep Error"
    )]
    Logs(logs::LogsArgs),
    /// Stop a queued or running job. A job that has ended stays as it is
    #[command(after_help = "Example:\n  corro job stop train-1")]
    Stop(stop::StopArgs),
    /// Delete a job. A running job is stopped first. Its output stays on the share
    #[command(after_help = "Examples:\n  corro job delete train-1\n  corro job delete cifar/train-1 --yes")]
    Delete(delete::DeleteArgs),
    /// Wait until a job has ended, then exit with its exit code
    #[command(after_help = "Example:\n  corro job wait train-1 && corro job fetch train-1")]
    Wait(wait::WaitArgs),
    /// Download what a submitted job has written, as 'corro fetch' does
    Fetch(fetch::FetchArgs),
    /// Open the page of a job in a browser
    Open(open::OpenArgs),
    /// Explain why a job is waiting, running, failed or ended, and what to do
    #[command(
        after_help = "Examples:\n  corro job why\n  corro job why train-1\n  corro job why cifar_distributed -g batchai.horovod -w batchaidev -e cifar"
    )]
    Why(RecentJobArgs),
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
    /// Open a shell in the environment of a running job
    ///
    /// The shell has the working directory and environment variables of the ranks, and runs in the job's container if it has
    /// one. Secrets are left out unless --with-secrets is given. It is the shell that the job's variable SHELL names, else bash,
    /// else sh. You log in as the cluster's administrator, as with 'corro job exec'. It ends with the job.
    #[command(after_help = "Examples:\n  corro job shell train-1\n  corro job shell train-1 --rank 3")]
    Shell(shell::ShellArgs),
    /// Reach ports of a running job on this machine
    ///
    /// Each connection to a local port goes through the server to the same port of the loopback address of the job's node, which
    /// its programs and containers share. Your machine need not reach the node, and you need the right to submit jobs. Runs
    /// until Ctrl-C or the end of the job.
    #[command(
        after_help = "Examples:\n  corro job port-forward train-1 6006\n  corro job port-forward train-1 8080:80 :5000\n  corro job port-forward train-1 9000 --rank 3"
    )]
    PortForward(port_forward::PortForwardArgs),
    /// Check a job file without a server
    ///
    /// Errors and warnings name line and column. The exit code is 0 if 'corro batchai job create' would accept the file, also
    /// with warnings, and 1 otherwise. Clusters, storage accounts and shares are not looked up.
    #[command(after_help = "Examples:\n  corro job validate job.json\n  corro job validate job.yaml --strict")]
    Validate(validate::ValidateArgs),
}

pub async fn run(args: JobArgs) -> Result<ExitCode, CliError> {
    match args.command {
        JobCommand::List(args) => list::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Show(args) => show::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Logs(args) => logs::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Stop(args) => stop::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Delete(args) => delete::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Wait(args) => wait::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Fetch(args) => fetch::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Open(args) => open::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Why(args) => why::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Top(args) => top::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Timeline(args) => timeline::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Plot(args) => plot::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Exec(args) => exec::run(args).await,
        JobCommand::Shell(args) => shell::run(args).await,
        JobCommand::PortForward(args) => port_forward::run(args).await.map(|()| ExitCode::SUCCESS),
        JobCommand::Validate(args) => validate::run(&args).map(|()| ExitCode::SUCCESS),
    }
}
