//! `corro sweep`: runs a script with many combinations of parameters, as jobs of one experiment. The server stops poor trials by the rule that their jobs
//! carry. Each trial's job has the whole definition of its sweep, so any one suffices to create those that are missing.
//!
//! Reading order: [`space`] and [`trials`] (what is tried), [`definition`], [`trial_job`] (the job of a trial), [`create`] and [`complete`] (the
//! requests), [`find`] and [`status`] (what exists), [`show`], [`list`], [`watch`], [`stop`].

mod args;
mod arguments;
mod complete;
mod create;
mod definition;
mod find;
mod list;
mod show;
mod space;
mod status;
mod stop;
mod table;
mod trial_job;
mod trials;
mod watch;

use clap::{Args, Subcommand};

use crate::error::CliError;
use args::CreateArgs;
use find::SweepNameArgs;
use list::ListArgs;

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "corro sweep [OPTIONS] --param NAME=VALUES... SCRIPT [-- ARGUMENT...]\n       corro sweep [OPTIONS] --param NAME=VALUES... -- COMMAND [ARGUMENT...]\n       corro sweep COMMAND NAME",
    after_help = "Examples:\n  corro sweep train.py --param lr=0.1,0.01 --param batch=32,64 \\\n      --metric val_acc\n  corro sweep train.py --param lr=log:1e-4..1e-1 --trials 24 \\\n      --metric val_acc --stop asha -- --epochs 30\n  corro sweep --param lr=0.1,0.01 --dry-run -- python train.py --rate={lr}\n\nThe script gets each parameter as an option, such as --lr 0.01, or where {lr} stands in its arguments, and as an environment variable, such as CORRO_PARAM_LR. Ctrl-C ends the command, and the sweep goes on."
)]
pub struct SweepArgs {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    #[command(flatten)]
    create: CreateArgs,
}

#[derive(Subcommand, Debug)]
enum SweepCommand {
    /// Show the trials of a sweep, best first
    #[command(after_help = "Example:\n  corro sweep show train-sweep-1")]
    Show(SweepNameArgs),
    /// List sweeps, newest first
    List(ListArgs),
    /// Show the best trial of a sweep: its parameters and how to get its results
    #[command(after_help = "Example:\n  corro sweep best train-sweep-1")]
    Best(SweepNameArgs),
    /// Stop all trials of a sweep that have not ended
    Stop(SweepNameArgs),
    /// Submit the trials of a sweep that are missing, after its submission was interrupted
    Resume(ResumeArgs),
}

#[derive(Args, Debug)]
struct ResumeArgs {
    #[command(flatten)]
    sweep: SweepNameArgs,
    /// Submit the trials and return, without waiting for their end
    #[arg(long, short = 'd')]
    detach: bool,
}

pub async fn run(args: SweepArgs) -> Result<(), CliError> {
    match args.command {
        None => create::run(args.create).await,
        Some(SweepCommand::Show(args)) => show::show(args).await,
        Some(SweepCommand::List(args)) => list::run(args).await,
        Some(SweepCommand::Best(args)) => show::best(args).await,
        Some(SweepCommand::Stop(args)) => stop::run(args).await,
        Some(SweepCommand::Resume(args)) => complete::run(args.sweep, args.detach).await,
    }
}
