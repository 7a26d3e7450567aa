//! `corro submit`: runs a script or a command of this directory on a cluster. Makes what is missing (group, workspace, experiment, cluster, storage),
//! sends the directory, submits the job, follows its output and exits with its exit code. [`job_spec`] decides what the job looks like; `--dry-run`
//! prints that and sends nothing.
//!
//! Reading order: [`submission`] (what is decided without a server), [`create`] (the requests, in order), [`follow`] (output until the end).

pub mod create;
pub mod follow;
pub mod job_spec;
pub mod kind;
pub mod names;
pub mod options;
mod project;
mod python_source;
pub mod resources;
pub mod submission;
pub mod values;

use clap::Args;

use crate::background_server::ensure_server;
use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use create::Creation;
use options::{JobOptions, PlaceOptions};
use submission::Submission;

#[derive(Args, Debug)]
#[command(
    override_usage = "corro submit [OPTIONS] SCRIPT [-- ARGUMENT...]\n       corro submit [OPTIONS] -- COMMAND [ARGUMENT...]",
    after_help = "Examples:\n  corro submit train.py --nodes 4 -- --epochs 3\n  corro submit --dir . --pip requirements.txt -- python train.py\n  corro submit --image python:3.12 --gpus 1 --detach -- python train.py\n  corro submit train.py --nodes 4 --dry-run > job.json\n\nThe exit code is that of the job. Ctrl-C ends the command, and the job goes on; a second Ctrl-C stops the job."
)]
pub struct SubmitArgs {
    /// Script to run. Its arguments follow after --
    #[arg(value_name = "SCRIPT", required_unless_present = "arguments")]
    pub script: Option<String>,
    /// Arguments of the script; without a script, the command to run
    #[arg(value_name = "ARGUMENT", last = true)]
    pub arguments: Vec<String>,
    #[command(flatten)]
    pub job: JobOptions,
    #[command(flatten)]
    pub place: PlaceOptions,
    /// Name of the job [default: the script's name with a number]
    #[arg(long, short = 'n', value_name = "NAME", help_heading = "Names")]
    pub name: Option<String>,
    /// Submit the job and return, without following its output
    #[arg(long, short = 'd')]
    detach: bool,
    /// When the job has ended, download what it wrote, as 'corro fetch' does
    #[arg(long, conflicts_with = "detach")]
    fetch: bool,
    /// Print the job file, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Start a server on this machine without asking, if none runs
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: SubmitArgs) -> Result<(), CliError> {
    let submission = Submission::plan(args.script.as_deref(), &args.arguments, &args.job, &args.place)?;
    if args.dry_run {
        return submission.print_job_file(args.name.as_deref());
    }
    submission.check_job_name(args.name.as_deref())?;
    ensure_server(args.yes).await?;
    let session = Session::open(&args.global)?;
    let collected = submission.collect_files()?;
    let target = Creation::new(&session, &submission, &collected).run(args.name.as_deref()).await?;
    if args.detach {
        let name = target.name("job");
        note(format_args!("See its output with 'corro job logs {name} --follow'."));
        print(name);
        return Ok(());
    }
    let job = follow::follow(&session, &target).await?;
    if args.fetch {
        super::fetch::fetch(&session, &job, None, false).await?;
    }
    follow::result_of(&job)
}
