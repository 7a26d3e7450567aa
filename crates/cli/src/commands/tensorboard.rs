//! `corro tensorboard`: starts the user's TensorBoard on the event files of a job, or of all jobs of an experiment, and refreshes them until Ctrl-C. It
//! reads a temporary directory with one subdirectory for each job; nothing else on this machine is written, and the directory is removed at the end.
//!
//! Reading order: [`program`] (the TensorBoard of this machine), [`event_files`] (which files a job has), [`mirror`] (the temporary directory).

mod event_files;
mod mirror;
mod program;

use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use corro_client::Client;
use corro_hosting::signals::ShutdownSignals;
use corro_model::batchai::{ExperimentSummary, Job};
use corro_model::ops::{ExperimentsGet, ExperimentsListAll, JobsGet, JobsList};
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::commands::batchai::job::wait::INTERRUPTED;
use crate::defaults::Defaults;
use crate::error::CliError;
use crate::progress::Spinner;
use crate::resource::args::ResourceNames;
use crate::resource::lookup::{self, pins};
use crate::resource::resolve::NameQuery;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::ExperimentPlace;
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;
use mirror::Mirror;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro tensorboard train-1
  corro tensorboard cifar --port 6007
  corro tensorboard train-1 -- --reload_interval 1

TensorBoard must be installed on this machine: 'pip install tensorboard'. It is
found in PATH, or as a module of python3. Jobs write event files anywhere in
their directory or in their output directories.")]
pub struct TensorboardArgs {
    /// Name of a job or of an experiment [default: the experiment of the current directory's project]
    #[arg(value_name = "JOB|EXPERIMENT")]
    name: Option<String>,
    #[command(flatten)]
    place: ExperimentPlace,
    /// Port of TensorBoard [default: TensorBoard's choice, from 6006 on]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Further arguments for TensorBoard
    #[arg(value_name = "ARGUMENT", last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    global: GlobalArgs,
}

/// Interval at which new event files and new data are looked for. TensorBoard itself reads again every five seconds.
const REFRESH_INTERVAL: Duration = Duration::from_secs(4);
/// Time for TensorBoard to end by itself after Ctrl-C.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code of a job or experiment that does not exist.
const NOT_FOUND: u8 = 3;

/// What is shown.
enum Subject {
    Job(ResourceRef),
    Experiment(ResourceRef),
}

pub async fn run(args: TensorboardArgs) -> Result<ExitCode, CliError> {
    let program = program::find().await?;
    let session = Session::open(&args.global)?;
    // From here on the temporary directory is removed, whatever ends the command.
    let mut signals = ShutdownSignals::listen()?;
    let mut mirror = Mirror::create(&session)?;
    let subject = tokio::select! {
        subject = prepare(&session, &args, &mut mirror) => subject?,
        () = signals.receive() => return Err(CliError::silent(INTERRUPTED)),
    };
    let mut child = program.start(mirror.path(), args.port, &args.arguments)?;
    tokio::select! {
        ended = child.wait() => tensorboard_result(ended),
        error = keep_fresh(&session, &subject, &mut mirror) => {
            end(&mut child).await;
            Err(error)
        }
        () = signals.receive() => {
            // A terminal sends Ctrl-C to TensorBoard too.
            end(&mut child).await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Finds what is to be shown, and its event files.
async fn prepare(session: &Session, args: &TensorboardArgs, mirror: &mut Mirror) -> Result<Subject, CliError> {
    let _spinner = Spinner::start("Looking for event files");
    let subject = find_subject(session.client()?, args).await?;
    let jobs = subject.jobs(session.client()?).await?;
    mirror.refresh(session, &jobs).await?;
    say_what_there_is(mirror, &subject, &jobs)?;
    Ok(subject)
}

/// The named job or experiment. A job comes first; an experiment of the same name has its own spelling, `-e NAME` alone.
async fn find_subject(client: &Client, args: &TensorboardArgs) -> Result<Subject, CliError> {
    let defaults = Defaults::load()?;
    let options = args.place.names();
    let Some(name) = &args.name else {
        let of_option =
            options.iter().find(|(parameter, ..)| *parameter == "experiment").and_then(|(_, _, given)| *given);
        let experiment = of_option.map(str::to_owned).or_else(|| defaults.project_experiment()).ok_or_else(|| {
            CliError::usage("the name of a job or of an experiment is required")
                .hint("list jobs with 'corro job list --all'")
        })?;
        return find_experiment(client, &defaults, &experiment, args).await.map(Subject::Experiment);
    };
    match lookup::find_job(client, &defaults, name, &options).await {
        Ok(job) => Ok(Subject::Job(job)),
        Err(error) if error.exit == NOT_FOUND => {
            // The error about the job is the better one if neither exists.
            find_experiment(client, &defaults, name, args).await.map(Subject::Experiment).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

async fn find_experiment(
    client: &Client,
    defaults: &Defaults,
    name: &str,
    args: &TensorboardArgs,
) -> Result<ResourceRef, CliError> {
    let options: Vec<_> = args.place.names().into_iter().filter(|(parameter, ..)| *parameter != "experiment").collect();
    let query = NameQuery {
        kind: "experiment",
        name,
        pins: pins(&options, defaults),
        preferred_experiment: None,
        list_command: "corro batchai experiment list",
    };
    let found: Vec<ExperimentSummary> = client.list::<ExperimentsListAll, _>(&[], &[]).await?;
    let reference = |found: &ExperimentSummary| ResourceRef::from_id::<ExperimentsGet>("NAME", &found.id);
    let candidates: Vec<ResourceRef> = found.iter().map(reference).collect::<Result<_, _>>()?;
    let names = || candidates.iter().map(|candidate| candidate.name("experiment"));
    query.choose(&candidates).map_err(|unresolved| query.error(&unresolved, names()))
}

impl Subject {
    async fn jobs(&self, client: &Client) -> Result<Vec<Job>, CliError> {
        match self {
            Subject::Job(target) => {
                let job = client.get::<JobsGet>(&target.values()).await.map_err(|error| target.show_error(error))?;
                Ok(vec![job])
            }
            Subject::Experiment(target) => {
                let jobs = client.list::<JobsList, _>(&target.values(), &[]).await;
                jobs.map_err(|error| target.show_error(error))
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Subject::Job(target) => format!("the job {}", target.name("job")),
            Subject::Experiment(target) => format!("the experiment {}", target.name("experiment")),
        }
    }
}

fn say_what_there_is(mirror: &Mirror, subject: &Subject, jobs: &[Job]) -> Result<(), CliError> {
    let text = subject.text();
    let (n_files, place) = (mirror.n_files(), if mirror.is_local() { "on this machine" } else { "on the server" });
    if n_files > 0 {
        let noun = if n_files == 1 { "event file" } else { "event files" };
        note(format_args!("{n_files} {noun} of {text}, {place}. Ctrl-C ends TensorBoard."));
        return Ok(());
    }
    if jobs.iter().all(|job| job.properties.status.execution_state.is_terminal()) {
        return Err(CliError {
            exit: NOT_FOUND,
            ..CliError::new(format!("{text} has written no TensorBoard event files"))
        }
        .hint("curves that Corro finds in its output are shown by 'corro job plot'"));
    }
    note(format_args!(
        "{text} has written no event files yet; TensorBoard shows them when there are some. Ctrl-C ends it."
    ));
    Ok(())
}

/// Refreshes until that is impossible. A server that does not answer for a while is no reason to end.
async fn keep_fresh(session: &Session, subject: &Subject, mirror: &mut Mirror) -> CliError {
    loop {
        sleep(REFRESH_INTERVAL).await;
        let refreshed = async {
            let jobs = subject.jobs(session.client()?).await?;
            mirror.refresh(session, &jobs).await
        };
        match refreshed.await {
            Ok(()) => {}
            Err(error) if error.exit == NOT_FOUND => return error,
            Err(_) => {}
        }
    }
}

async fn end(child: &mut Child) {
    if timeout(Duration::from_millis(1), child.wait()).await.is_ok() {
        return;
    }
    program::interrupt(child);
    if timeout(END_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn tensorboard_result(ended: std::io::Result<ExitStatus>) -> Result<ExitCode, CliError> {
    let status = ended.map_err(|error| CliError::new("cannot wait for TensorBoard").cause(error))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if code != 0 {
        note(format_args!("TensorBoard ended with exit code {code}."));
    }
    Ok(ExitCode::from(code))
}
