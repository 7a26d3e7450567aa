//! `corro batchai job`: submit, show, list, wait for, terminate and delete jobs.

pub mod file;
pub mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::batchai::{ExecutionState, Job, JobCreateParameters, RemoteLoginInformation, ResourceId};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{ClustersGet, JobsCreate, JobsDelete, JobsGet, JobsList, JobsListRemoteLogin, JobsTerminate};
use corro_model::validate;

use crate::commands::batchai::node::{self, NodeParent};
use crate::commands::batchai::volumes::{self, MountArgs};
use crate::config_file;
use crate::error::CliError;
use crate::job_notes::{note_waiting_reason, why_command};
use crate::node_ssh::cluster_of_job;
use crate::output::{Shape, TableKind, escape_controls};
use crate::progress::Spinner;
use crate::resource::actions::{self, EndAction, Resource};
use crate::resource::args::{EndArgs, ExperimentArgs, ResourceNames, ResourceSelection, with_parent};
use crate::resource::resource_ref::{JOB_FLAG, NAME_FLAG, NameArg, ResourceRef};
use crate::session::Session;
use crate::stdio::note;

#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// Submit a job that a JSON or YAML file describes. It starts as soon as enough nodes are free
    #[command(
        after_help = "Example:\n  corro batchai job create -g batchai.horovod -w batchaidev -e cifar \\\n      -n cifar_distributed --cluster nc6cluster --config-file job.json \\\n      --storage-account-name mystorageaccount"
    )]
    Create(Box<CreateArgs>),
    /// Show a job: its settings, state and exit code
    #[command(
        after_help = "Example:\n  corro batchai job show -g batchai.horovod -w batchaidev -e cifar \\\n      -n cifar_distributed --query executionState"
    )]
    Show(ResourceSelection<NameArgs>),
    /// List the jobs of an experiment
    List(ExperimentArgs),
    /// Wait until a job ends, then exit with the job's exit code
    Wait(WaitArgs),
    /// Stop a queued or running job
    Terminate(EndArgs<NameArgs>),
    /// Delete a job. A running job is stopped first. Its output stays on the share
    Delete(EndArgs<NameArgs>),
    /// List the output files of a job, or follow one
    #[command(subcommand)]
    File(file::JobFileCommand),
    /// List the nodes of a job, or run a command on one
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

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.experiment, ("job", NAME_FLAG, self.name.as_deref()))
    }
}

/// Arguments that name a job, as the parent of files and nodes.
#[derive(Args, Debug)]
pub struct ParentArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Name of the job
    #[arg(long, short = 'j', value_name = "JOB")]
    job: Option<String>,
}

impl ResourceNames for ParentArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.experiment, ("job", JOB_FLAG, self.job.as_deref()))
    }
}

impl NodeParent for ParentArgs {
    async fn logins(client: &Client, target: &ResourceRef) -> Result<Vec<RemoteLoginInformation>, CliError> {
        let logins = client.list::<JobsListRemoteLogin, _>(&target.values(), &[]).await;
        logins.map_err(|error| target.request_error(error))
    }

    async fn cluster(client: &Client, target: &ResourceRef) -> Result<ResourceRef, CliError> {
        cluster_of_job(client, target).await
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// JSON or YAML file that describes the job
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    config_file: PathBuf,
    /// Cluster to run on: its name, or its full id if it is in another workspace
    #[arg(long, short = 'c', value_name = "CLUSTER", required = true)]
    cluster: String,
    #[command(flatten)]
    mounts: MountArgs,
}

#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    job: ResourceSelection<NameArgs>,
    /// Seconds between two checks [default: 1 at first, increasing to 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

/// Jobs as a kind of resource.
pub struct Jobs;

impl Resource for Jobs {
    type Item = Job;
    type Get = JobsGet;
    type List = JobsList;
    const SHAPE: Shape = Shape::Job;
    const TABLE: TableKind = TableKind::Job;

    async fn deletion_warnings(client: &Client, target: &ResourceRef) -> Vec<String> {
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

pub async fn run(session: &Session, command: JobCommand) -> Result<(), CliError> {
    let stopping = EndAction { progress_text: "Stopping", is_deletion: false, warning: Some(termination_warning) };
    let deleting = EndAction { progress_text: "Deleting", is_deletion: true, warning: None };
    match command {
        JobCommand::Create(args) => create(session, *args).await,
        JobCommand::Show(args) => actions::show::<Jobs>(session, &args).await,
        JobCommand::List(args) => actions::list::<Jobs>(session, &args.target()?).await,
        JobCommand::Wait(args) => {
            for target in actions::targets::<Jobs>(&args.job)? {
                wait::wait(session, &target, args.interval).await?;
            }
            Ok(())
        }
        JobCommand::Terminate(args) => actions::end::<Jobs, JobsTerminate>(session, &args, stopping).await,
        JobCommand::Delete(args) => actions::end::<Jobs, JobsDelete>(session, &args, deleting).await,
        JobCommand::File(command) => file::run(session, command).await,
        JobCommand::Node(command) => node::run(session, command).await,
    }
}

/// Names the jobs that are terminated after the confirmation.
fn termination_warning(jobs: &[ResourceRef]) -> String {
    let name = |job: &ResourceRef| format!("\"{}\" of experiment \"{}\"", job.name("job"), job.name("experiment"));
    let names: Vec<String> = jobs.iter().map(name).collect();
    let noun = if jobs.len() == 1 { "job" } else { "jobs" };
    format!("This stops the {noun} {}.", names.join(", "))
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.name.target()?;
    check_name(NameKind::Job, target.name("job"))?;
    let file = config_file::load::<JobCreateParameters>(&args.config_file, Shape::Job)?;
    file.print_warnings();
    let mut spec = file.content.properties.clone();
    // Mistakes in the file are reported before the first request.
    validate::check_job(&spec).map_err(|error| file.invalid(error))?;

    let (client, values) = (session.client()?, target.values());
    if client.find::<JobsGet>(&values).await.map_err(|error| target.request_error(error))?.is_some() {
        return Err(CliError::new("A job with given name, experiment, workspace and resource group already exists.")
            .hint(format!(
                "choose another name, or delete it with 'corro batchai job delete {}'",
                target.arguments()
            )));
    }
    spec.cluster = Some(ResourceId { id: cluster_id(client, &args.cluster, &target).await? });
    spec.mount_volumes = volumes::fill(client, spec.mount_volumes, &args.mounts, &target).await?;
    validate::check_job(&spec).map_err(|error| file.invalid(error))?;

    let spinner = Spinner::start("Submitting");
    let job = client.run::<JobsCreate>(&values, &JobCreateParameters { properties: spec }).await;
    drop(spinner);
    let job = job.map_err(|error| target.request_error(error))?;
    actions::print::<Jobs>(session, &job)?;
    note_waiting_reason(&job, &mut None);
    if job.properties.status.execution_state == ExecutionState::Failed {
        // The submission succeeded, but the failure must not go unnoticed in the output.
        note(format_args!("The job \"{}\" failed: {}", job.name, escape_controls(&corro_model::explain::reason(&job))));
        note(format_args!("See '{}' for what to do.", why_command(&target)));
    }
    Ok(())
}

/// The full id of an existing cluster, spelled as the server does.
async fn cluster_id(client: &Client, cluster: &str, job: &ResourceRef) -> Result<String, CliError> {
    let target = match cluster.starts_with('/') {
        true => ResourceRef::from_id::<ClustersGet>("--cluster/-c", cluster)?,
        false => job.sibling("cluster", cluster),
    };
    let found = client.get::<ClustersGet>(&target.values()).await;
    Ok(found.map_err(|error| target.request_error(error))?.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_before_a_termination_names_the_job() {
        let job = |name: &str| {
            let names = [("group", "g"), ("workspace", "w"), ("experiment", "e"), ("job", name)];
            ResourceRef::from_names(&names.map(|(parameter, name)| (parameter, NAME_FLAG, Some(name)))).expect("names")
        };
        assert_eq!(termination_warning(&[job("j")]), "This stops the job \"j\" of experiment \"e\".");
        assert_eq!(
            termination_warning(&[job("a"), job("b")]),
            "This stops the jobs \"a\" of experiment \"e\", \"b\" of experiment \"e\"."
        );
    }
}
