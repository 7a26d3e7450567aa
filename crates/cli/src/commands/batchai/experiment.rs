//! `corro batchai experiment`.

use clap::{Args, Subcommand};
use corro_model::batchai::Experiment;
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{ExperimentsCreate, ExperimentsDelete, ExperimentsGet, ExperimentsList, NoBody};

use crate::commands::resource::{self, Ending, Resource};
use crate::commands::resource_args::{Chosen, EndArgs, Names, WorkspaceArgs, with};
use crate::commands::resource_ref::{NAME_FLAG, Name};
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ExperimentCommand {
    /// Make an experiment
    #[command(after_help = "Example:\n  corro batchai experiment create -g batchai.horovod -w batchaidev -n cifar")]
    Create(NameArgs),
    /// Show an experiment
    Show(Chosen<NameArgs>),
    /// List the experiments of a workspace
    List(WorkspaceArgs),
    /// Delete an experiment and its jobs; running jobs are stopped
    Delete(EndArgs<NameArgs>),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the experiment
    #[arg(long, short = 'n', value_name = "EXPERIMENT")]
    name: Option<String>,
}

impl Names for NameArgs {
    fn names(&self) -> Vec<Name<'_>> {
        with(&self.workspace, ("experiment", NAME_FLAG, self.name.as_deref()))
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

pub async fn run(session: &Session, command: ExperimentCommand) -> Result<(), Failure> {
    let deleting = Ending {
        doing: "Deleting",
        deletes: true,
        loss: Some("Its jobs are deleted with it, running ones are stopped. Their output stays on the shares."),
    };
    match command {
        ExperimentCommand::Create(args) => create(session, args).await,
        ExperimentCommand::Show(args) => resource::show::<Experiments>(session, &args).await,
        ExperimentCommand::List(args) => resource::list::<Experiments>(session, &args.target()?).await,
        ExperimentCommand::Delete(args) => {
            resource::end::<Experiments, ExperimentsDelete>(session, &args, deleting).await
        }
    }
}

async fn create(session: &Session, args: NameArgs) -> Result<(), Failure> {
    let target = args.target()?;
    check_name(NameOf::Experiment, target.name("experiment"))?;
    let spinner = Spinner::start("Creating");
    let experiment = session.client()?.run::<ExperimentsCreate>(&target.values(), &NoBody {}).await;
    drop(spinner);
    resource::print::<Experiments>(session, &experiment.map_err(|error| target.failure(error))?)
}
