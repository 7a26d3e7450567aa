//! `corro notebook`: a job that runs the user's Jupyter, and a local port that reaches it. Jupyter listens on the loopback address of the job's node, and
//! each connection travels through the server and the node's agent to this one port only. The job goes on when the command ends; `notebook attach` reaches
//! it again.
//!
//! Reading order: [`program`] (the job), [`endpoint`] (where its Jupyter listens), [`attach`] (from job to browser).

mod attach;
mod endpoint;
mod program;

use clap::{Args, Subcommand};
use corro_model::Secret;

use crate::background_server::ensure_server;
use crate::commands::submit::create::Creation;
use crate::commands::submit::options::{JobOptions, PlaceOptions};
use crate::commands::submit::submission::Submission;
use crate::error::CliError;
use crate::local_port::LocalPort;
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};

/// Local port of the first choice, which users of Jupyter know.
const USUAL_PORT: u16 = 8888;

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  corro notebook --pip jupyterlab --gpus 1
  corro notebook --venv .venv --stop-on-exit
  corro notebook --image quay.io/jupyter/scipy-notebook
  corro notebook attach notebook-1

Jupyter starts in the job's copy of this directory. What you save there is
the job's result: 'corro fetch' downloads it. Ctrl-C ends the command, and the
notebook goes on until 'corro job stop', or until --time is over."
)]
pub struct NotebookArgs {
    #[command(subcommand)]
    command: Option<NotebookCommand>,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    place: PlaceOptions,
    /// Name of the job [default: notebook with a number]
    #[arg(long, short = 'n', value_name = "NAME", help_heading = "Names")]
    name: Option<String>,
    /// Submit the job and return, without a local port
    #[arg(long, short = 'd', conflicts_with = "stop_on_exit")]
    detach: bool,
    /// Start a server on this machine without asking, if none runs
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    local: LocalArgs,
    /// Arguments for Jupyter
    #[arg(value_name = "ARGUMENT", last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum NotebookCommand {
    /// Reach the Jupyter of a notebook job again
    #[command(after_help = "Example:\n  corro notebook attach notebook-1")]
    Attach(AttachArgs),
}

#[derive(Args, Debug)]
struct AttachArgs {
    #[command(flatten)]
    job: JobNameArgs,
    #[command(flatten)]
    local: LocalArgs,
}

/// The local end.
#[derive(Args, Clone, Debug)]
struct LocalArgs {
    /// Port on this machine [default: 8888, or a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Stop the job when the command ends
    #[arg(long)]
    stop_on_exit: bool,
}

impl LocalArgs {
    async fn open_port(&self) -> Result<LocalPort, CliError> {
        let opened = LocalPort::open(self.port, USUAL_PORT).await;
        opened.map_err(|error| error.hint("choose another one with --port, or leave it out"))
    }
}

pub async fn run(args: NotebookArgs) -> Result<(), CliError> {
    if let Some(NotebookCommand::Attach(args)) = args.command {
        let session = Session::open(&GlobalArgs::default())?;
        let target = args.job.find(&session).await?;
        let port = args.local.open_port().await?;
        return attach::attach(&session, &target, args.local.stop_on_exit, port).await;
    }
    let token = new_token()?;
    let options = program::job_options(args.job, &token)?;
    let mut submission = Submission::plan(None, &program::command(&args.arguments), &options, &args.place)?;
    // Of the project file's options only those of one process apply.
    submission.request.processes = None;
    submission.request.retries = 0;
    submission.check_job_name(args.name.as_deref())?;
    // Nothing is submitted if the port cannot be had.
    let port = if args.detach { None } else { Some(args.local.open_port().await?) };
    ensure_server(args.yes).await?;
    let session = Session::open(&args.global)?;
    let files = submission.collect_files()?;
    let target = Creation::new(&session, &submission, &files).run(args.name.as_deref()).await?;
    let Some(port) = port else {
        let name = target.name("job");
        note(format_args!("Reach it with 'corro notebook attach {name}'."));
        print(name);
        return Ok(());
    };
    attach::attach(&session, &target, args.local.stop_on_exit, port).await
}

/// A token that nobody can guess: 24 random bytes.
fn new_token() -> Result<Secret, CliError> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| CliError::new("cannot make a random token").cause(error))?;
    Ok(Secret::new(bytes.map(|byte| format!("{byte:02x}")).concat()))
}
