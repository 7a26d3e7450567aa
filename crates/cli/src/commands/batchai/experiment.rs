//! `corro batchai experiment`: create, show, list and delete experiments.

use clap::{Args, Subcommand};
use corro_model::batchai::{Experiment, Notifications};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{
    ExperimentsCreate, ExperimentsDelete, ExperimentsGet, ExperimentsList, ExperimentsNotify, NoBody,
};

use crate::defaults::SubmitOptions;
use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::resource::actions::{self, EndAction, Resource};
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection, WorkspaceArgs, with_parent};
use crate::resource::resource_ref::{NAME_FLAG, NameArg};
use crate::session::Session;
use crate::webhook_options::WebhookOptions;

#[derive(Subcommand, Debug)]
pub enum ExperimentCommand {
    /// Create an experiment, or change the webhook of its jobs
    #[command(
        after_help = "Examples:\n  corro batchai experiment create -g batchai.horovod -w batchaidev -n cifar\n  corro batchai experiment create -n cifar --webhook HOOK --webhook-on failed"
    )]
    Create(CreateArgs),
    /// Show an experiment
    Show(ResourceSelection<NameArgs>),
    /// List the experiments of a workspace
    List(WorkspaceArgs),
    /// Delete an experiment and its jobs. Running jobs are stopped
    Delete(EndArgs<NameArgs>),
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    names: NameArgs,
    #[command(flatten)]
    webhook: WebhookOptions,
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the experiment
    #[arg(long, short = 'n', value_name = "EXPERIMENT")]
    name: Option<String>,
}

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("experiment", NAME_FLAG, self.name.as_deref()))
    }
}

struct Experiments;

impl Resource for Experiments {
    type Item = Experiment;
    type Get = ExperimentsGet;
    type List = ExperimentsList;
    const SHAPE: Shape = Shape::Experiment;
    const TABLE: TableKind = TableKind::Experiment;
}

pub async fn run(session: &Session, command: ExperimentCommand) -> Result<(), CliError> {
    let deleting = EndAction {
        progress_text: "Deleting",
        is_deletion: true,
        warning: Some(|_| {
            "Its jobs are deleted with it, running ones are stopped. Their output stays on the shares.".to_owned()
        }),
    };
    match command {
        ExperimentCommand::Create(args) => create(session, args).await,
        ExperimentCommand::Show(args) => actions::show::<Experiments>(session, &args).await,
        ExperimentCommand::List(args) => actions::list::<Experiments>(session, &args.target()?).await,
        ExperimentCommand::Delete(args) => {
            actions::end::<Experiments, ExperimentsDelete>(session, &args, deleting).await
        }
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.names.target()?;
    check_name(NameKind::Experiment, target.name("experiment"))?;
    // Before the experiment is made: a wrong option makes nothing.
    let webhook = args.webhook.resolve(&SubmitOptions::default(), |name| std::env::var(name).ok())?;
    let client = session.client()?;
    let spinner = Spinner::start("Creating");
    let mut experiment = client.run::<ExperimentsCreate>(&target.values(), &NoBody {}).await;
    if experiment.is_ok() && args.webhook.is_given() {
        experiment = client.run::<ExperimentsNotify>(&target.values(), &Notifications { webhook }).await;
    }
    drop(spinner);
    actions::print::<Experiments>(session, &experiment.map_err(|error| target.request_error(error))?)
}
