//! `corro batchai job`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_model::batchai::{JobCreateParameters, ResourceId};
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{ClustersGet, JobsCreate, JobsDelete, JobsGet, JobsList, JobsTerminate, NoBody};
use corro_model::{ids, validate};

use super::job_stream::say_waiting;
use super::mounts::{self, MountArgs};
use super::target::{EXPERIMENT_FLAG, GROUP_FLAG, NAME_FLAG, Name, Target, WORKSPACE_FLAG};
use super::{config_file, job_file, job_wait};
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// Submit a job described by a JSON file; it starts as soon as enough nodes are free
    #[command(
        after_help = "Example:\n  corro batchai job create -g batchai.horovod -w batchaidev -e cifar \\\n      -n cifar_distributed --cluster nc6cluster --config-file job.json \\\n      --storage-account-name mystorageaccount"
    )]
    Create(Box<CreateArgs>),
    /// Show a job: its settings, state and exit code
    #[command(
        after_help = "Example:\n  corro batchai job show -g batchai.horovod -w batchaidev -e cifar \\\n      -n cifar_distributed --query executionState"
    )]
    Show(ShowArgs),
    /// List the jobs of an experiment
    List(ListArgs),
    /// Wait for the end of a job; exits with the job's exit code
    Wait(WaitArgs),
    /// Stop a job that is queued or running
    Terminate(EndArgs),
    /// Delete a job; a running one is stopped first. Its output stays on the share
    Delete(EndArgs),
    /// Output files of a job: list and follow them
    #[command(subcommand)]
    File(job_file::JobFileCommand),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Name of the job
    #[arg(long, short = 'n', value_name = "JOB")]
    name: Option<String>,
}

/// The experiment a job is in.
#[derive(Args, Debug)]
pub struct ExperimentArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
    /// Name of the experiment
    #[arg(long, short = 'e', value_name = "EXPERIMENT")]
    experiment: Option<String>,
}

impl ExperimentArgs {
    pub fn names(&self) -> [Name<'_>; 3] {
        [
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
            ("experiment", EXPERIMENT_FLAG, self.experiment.as_deref()),
        ]
    }
}

impl NameArgs {
    fn names(&self) -> Vec<Name<'_>> {
        let mut names = self.experiment.names().to_vec();
        names.push(("job", NAME_FLAG, self.name.as_deref()));
        names
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// JSON file that describes the job
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    config_file: PathBuf,
    /// Cluster to run on: name, or id when it is in another workspace
    #[arg(long, short = 'c', value_name = "CLUSTER", required = true)]
    cluster: String,
    #[command(flatten)]
    mounts: MountArgs,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Full ids, instead of names
    #[arg(long, num_args = 1.., value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
}

#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Seconds between looks at the job [default: 1 at first, growing to 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    interval: Option<u64>,
}

#[derive(Args, Debug)]
pub struct EndArgs {
    #[command(flatten)]
    job: ShowArgs,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(session: &Session, command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Create(args) => create(session, *args).await,
        JobCommand::Show(args) => show(session, args).await,
        JobCommand::List(args) => {
            let experiment = Target::named(&args.experiment.names())?;
            let jobs = session.client()?.list::<JobsList, _>(&experiment.values(), &[]).await?;
            session.print(Shape::Job, Some(TableKind::Job), &jobs)
        }
        JobCommand::Wait(args) => job_wait::wait(session, &Target::named(&args.name.names())?, args.interval).await,
        JobCommand::Terminate(args) => end::<JobsTerminate>(session, args, "Stopping").await,
        JobCommand::Delete(args) => end::<JobsDelete>(session, args, "Deleting").await,
        JobCommand::File(command) => job_file::run(session, command).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let target = Target::named(&args.name.names())?;
    let (group, workspace) = (target.name("group"), target.name("workspace"));
    check_name(NameOf::Job, target.name("job"))?;
    let (parameters, unknown) = config_file::read::<JobCreateParameters>(&args.config_file, Shape::Job)?;
    config_file::warn_about_unknown_fields(&args.config_file, &unknown);
    let mut spec = parameters.properties;
    // What the file alone shows to be wrong is said before the server is asked.
    validate::check_job(&spec).map_err(|error| about_file(&args.config_file, error))?;

    if session.client()?.find::<JobsGet>(&target.values()).await?.is_some() {
        return Err(Failure::new("A job with given name, experiment, workspace and resource group already exists.")
            .hint("choose another name, or delete it with 'corro batchai job delete'"));
    }
    spec.cluster = Some(ResourceId { id: cluster_id(session, &args.cluster, group, workspace).await? });
    spec.mount_volumes = mounts::fill(session.client()?, spec.mount_volumes, &args.mounts, (group, workspace)).await?;
    validate::check_job(&spec).map_err(|error| about_file(&args.config_file, error))?;

    let spinner = Spinner::start("Submitting");
    let job = session.client()?.run::<JobsCreate>(&target.values(), &JobCreateParameters { properties: spec }).await?;
    drop(spinner);
    session.print(Shape::Job, Some(TableKind::Job), &job)?;
    say_waiting(&job, &mut None);
    Ok(())
}

fn about_file(path: &std::path::Path, error: corro_model::ApiError) -> Failure {
    let failure = Failure::from(error);
    Failure { message: format!("{}: {}", path.display(), failure.message), ..failure }
}

/// The cluster's full id as the server knows it; the cluster must exist.
async fn cluster_id(session: &Session, cluster: &str, group: &str, workspace: &str) -> Result<String, Failure> {
    let (group, workspace, name) = match cluster.starts_with('/') {
        true => ids::arm::parse_cluster(cluster).ok_or_else(|| {
            Failure::usage(format!("argument --cluster/-c: '{cluster}' is not the id of a cluster"))
                .hint("give the cluster's name, or the 'id' that 'corro batchai cluster show' prints")
        })?,
        false => (group, workspace, cluster),
    };
    let path = [("group", group), ("workspace", workspace), ("cluster", name)];
    Ok(session.client()?.get::<ClustersGet>(&path).await?.id)
}

async fn show(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let targets = Target::all::<JobsGet>(&args.ids, &args.name.names())?;
    let mut found = Vec::new();
    for target in &targets {
        found.push(session.client()?.get::<JobsGet>(&target.values()).await.map_err(Failure::of_show)?);
    }
    session.print_found(Shape::Job, TableKind::Job, &found, args.ids.len())
}

/// Delete and terminate are alike but for the request.
async fn end<O>(session: &Session, args: EndArgs, doing: &str) -> Result<(), Failure>
where
    O: corro_model::ops::Operation<Request = NoBody>,
{
    let targets = Target::all::<JobsGet>(&args.job.ids, &args.job.name.names())?;
    prompt::confirm(args.yes)?;
    for target in &targets {
        let pending = session.client()?.start::<O>(&target.values(), &NoBody {}).await?;
        if !args.no_wait {
            let _spinner = Spinner::start(doing);
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}
