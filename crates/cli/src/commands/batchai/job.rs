//! `corro batchai job`. Waiting for one is in `wait`, its files in `file` and `stream`, logging in to its nodes
//! in `node`.

pub mod file;
pub mod stream;
pub mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::batchai::{ExecutionState, Job, JobCreateParameters, RemoteLoginInformation, ResourceId};
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{ClustersGet, JobsCreate, JobsDelete, JobsGet, JobsList, JobsListRemoteLogin, JobsTerminate};
use corro_model::validate;

use crate::commands::batchai::config_file;
use crate::commands::batchai::job::stream::say_waiting;
use crate::commands::batchai::node::{self, NodeParent};
use crate::commands::batchai::volumes::{self, MountArgs};
use crate::commands::job::why;
use crate::commands::resource::{self, Ending, Resource};
use crate::commands::resource_args::{Chosen, EndArgs, ExperimentArgs, Names, with};
use crate::commands::resource_ref::{JOB_FLAG, NAME_FLAG, Name, Target};
use crate::failure::Failure;
use crate::output::{Shape, TableKind, escape_controls};
use crate::progress::Spinner;
use crate::session::Session;
use crate::talk::say;

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
    Show(Chosen<NameArgs>),
    /// List the jobs of an experiment
    List(ExperimentArgs),
    /// Wait for the end of a job; exits with the job's exit code
    Wait(WaitArgs),
    /// Stop a job that is queued or running
    Terminate(EndArgs<NameArgs>),
    /// Delete a job; a running one is stopped first. Its output stays on the share
    Delete(EndArgs<NameArgs>),
    /// Output files of a job: list and follow them
    #[command(subcommand)]
    File(file::JobFileCommand),
    /// Nodes that a job runs on: how to reach them, and running commands on them
    #[command(subcommand)]
    Node(node::NodeCommand<ParentArgs>),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Name of the job
    #[arg(long, short = 'n', value_name = "JOB")]
    name: Option<String>,
}

impl Names for NameArgs {
    fn names(&self) -> Vec<Name<'_>> {
        with(&self.experiment, ("job", NAME_FLAG, self.name.as_deref()))
    }
}

/// A job, as the parent of files and nodes.
#[derive(Args, Debug)]
pub struct ParentArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Name of the job
    #[arg(long, short = 'j', value_name = "JOB")]
    job: Option<String>,
}

impl Names for ParentArgs {
    fn names(&self) -> Vec<Name<'_>> {
        with(&self.experiment, ("job", JOB_FLAG, self.job.as_deref()))
    }
}

impl NodeParent for ParentArgs {
    async fn logins(client: &Client, target: &Target) -> Result<Vec<RemoteLoginInformation>, Failure> {
        let logins = client.list::<JobsListRemoteLogin, _>(&target.values(), &[]).await;
        logins.map_err(|error| target.failure(error))
    }

    async fn cluster(client: &Client, target: &Target) -> Result<Target, Failure> {
        cluster_of(client, target).await
    }
}

/// The cluster that the job runs on.
pub async fn cluster_of(client: &Client, target: &Target) -> Result<Target, Failure> {
    let job = client.get::<JobsGet>(&target.values()).await.map_err(|error| target.failure(error))?;
    let id = job.properties.spec.cluster.as_ref().map(|cluster| cluster.id.clone()).unwrap_or_default();
    Target::of_id::<ClustersGet>("--job/-j", &id)
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
pub struct WaitArgs {
    #[command(flatten)]
    job: Chosen<NameArgs>,
    /// Seconds between looks at the job [default: 1 at first, growing to 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

struct Jobs;

impl Resource for Jobs {
    type Item = Job;
    type Get = JobsGet;
    type List = JobsList;
    const SHAPE: Shape = Shape::Job;
    const TABLE: TableKind = TableKind::Job;

    async fn losses(client: &Client, target: &Target) -> Vec<String> {
        let Ok(job) = client.get::<JobsGet>(&target.values()).await else { return Vec::new() };
        match job.properties.status.execution_state {
            ExecutionState::Running => {
                vec![format!("The job \"{}\" is running: it is stopped. What it wrote to shares stays.", job.name)]
            }
            ExecutionState::Queued => vec![format!("The job \"{}\" is queued: it will not run.", job.name)],
            _ => Vec::new(),
        }
    }
}

pub async fn run(session: &Session, command: JobCommand) -> Result<(), Failure> {
    let stopping = Ending { doing: "Stopping", deletes: false, loss: None };
    let deleting = Ending { doing: "Deleting", deletes: true, loss: None };
    match command {
        JobCommand::Create(args) => create(session, *args).await,
        JobCommand::Show(args) => resource::show::<Jobs>(session, &args).await,
        JobCommand::List(args) => resource::list::<Jobs>(session, &args.target()?).await,
        JobCommand::Wait(args) => {
            for target in resource::targets::<Jobs>(&args.job)? {
                wait::wait(session, &target, args.interval).await?;
            }
            Ok(())
        }
        JobCommand::Terminate(args) => resource::end::<Jobs, JobsTerminate>(session, &args, stopping).await,
        JobCommand::Delete(args) => resource::end::<Jobs, JobsDelete>(session, &args, deleting).await,
        JobCommand::File(command) => file::run(session, command).await,
        JobCommand::Node(command) => node::run(session, command).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let target = args.name.target()?;
    check_name(NameOf::Job, target.name("job"))?;
    let mut spec = config_file::read::<JobCreateParameters>(&args.config_file, Shape::Job)?.properties;
    // What the file alone shows to be wrong is said before the server is asked.
    validate::check_job(&spec).map_err(|error| about_file(&args.config_file, error))?;

    let (client, values) = (session.client()?, target.values());
    if client.find::<JobsGet>(&values).await.map_err(|error| target.failure(error))?.is_some() {
        return Err(Failure::new("A job with given name, experiment, workspace and resource group already exists.")
            .hint(format!(
                "choose another name, or delete it with 'corro batchai job delete {}'",
                target.arguments()
            )));
    }
    spec.cluster = Some(ResourceId { id: cluster_id(client, &args.cluster, &target).await? });
    spec.mount_volumes = volumes::fill(client, spec.mount_volumes, &args.mounts, &target).await?;
    validate::check_job(&spec).map_err(|error| about_file(&args.config_file, error))?;

    let spinner = Spinner::start("Submitting");
    let job = client.run::<JobsCreate>(&values, &JobCreateParameters { properties: spec }).await;
    drop(spinner);
    let job = job.map_err(|error| target.failure(error))?;
    resource::print::<Jobs>(session, &job)?;
    say_waiting(&job, &mut None);
    if job.properties.status.execution_state == ExecutionState::Failed {
        // It was submitted, so the command succeeded; nobody should have to find this in the answer.
        say(format_args!("The job \"{}\" failed: {}", job.name, escape_controls(&corro_model::explain::reason(&job))));
        say(format_args!("See '{}' for what to do.", why::ask_why(&target)));
    }
    Ok(())
}

fn about_file(path: &std::path::Path, error: corro_model::ApiError) -> Failure {
    let failure = Failure::from(error);
    Failure { message: format!("{}: {}", path.display(), failure.message), ..failure }
}

/// The cluster's full id as the server knows it; the cluster must exist.
async fn cluster_id(client: &Client, cluster: &str, job: &Target) -> Result<String, Failure> {
    let target = match cluster.starts_with('/') {
        true => Target::of_id::<ClustersGet>("--cluster/-c", cluster)?,
        false => job.sibling("cluster", cluster),
    };
    let found = client.get::<ClustersGet>(&target.values()).await;
    Ok(found.map_err(|error| target.failure(error))?.id)
}
