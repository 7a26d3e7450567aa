//! `corro batchai experiment`.

use clap::{Args, Subcommand};
use corro_model::ops::{ExperimentsCreate, ExperimentsDelete, ExperimentsGet, ExperimentsList, NoBody};

use super::target::{GROUP_FLAG, NAME_FLAG, Name, Target, WORKSPACE_FLAG};
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ExperimentCommand {
    /// Make an experiment
    #[command(after_help = "Example:\n  corro batchai experiment create -g batchai.horovod -w batchaidev -n cifar")]
    Create(NameArgs),
    /// Show an experiment
    Show(ShowArgs),
    /// List the experiments of a workspace
    List(ListArgs),
    /// Delete an experiment and its jobs; running jobs are stopped
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
    /// Name of the experiment
    #[arg(long, short = 'n', value_name = "EXPERIMENT")]
    name: Option<String>,
}

impl NameArgs {
    fn names(&self) -> [Name<'_>; 3] {
        [
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
            ("experiment", NAME_FLAG, self.name.as_deref()),
        ]
    }
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
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    target: ShowArgs,
    /// Do not wait until everything is gone
    #[arg(long)]
    no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(session: &Session, command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Create(args) => {
            let target = Target::named(&args.names())?;
            let experiment = session.client()?.run::<ExperimentsCreate>(&target.values(), &NoBody {}).await?;
            session.print(Shape::Experiment, Some(TableKind::Experiment), &experiment)
        }
        ExperimentCommand::Show(args) => show(session, args).await,
        ExperimentCommand::List(args) => {
            let workspace = Target::named(&[
                ("group", GROUP_FLAG, args.resource_group.as_deref()),
                ("workspace", WORKSPACE_FLAG, args.workspace.as_deref()),
            ])?;
            let experiments = session.client()?.list::<ExperimentsList, _>(&workspace.values(), &[]).await?;
            session.print(Shape::Experiment, Some(TableKind::Experiment), &experiments)
        }
        ExperimentCommand::Delete(args) => delete(session, args).await,
    }
}

async fn show(session: &Session, args: ShowArgs) -> Result<(), Failure> {
    let targets = Target::all::<ExperimentsGet>(&args.ids, &args.name.names())?;
    let mut found = Vec::new();
    for target in &targets {
        found.push(session.client()?.get::<ExperimentsGet>(&target.values()).await.map_err(Failure::of_show)?);
    }
    session.print_found(Shape::Experiment, TableKind::Experiment, &found, args.ids.len())
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let targets = Target::all::<ExperimentsGet>(&args.target.ids, &args.target.name.names())?;
    prompt::confirm(args.yes)?;
    for target in &targets {
        let pending = session.client()?.start::<ExperimentsDelete>(&target.values(), &NoBody {}).await?;
        if !args.no_wait {
            let _spinner = Spinner::start("Deleting");
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}
