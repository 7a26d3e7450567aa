//! The arguments that say which resource a command is about: `-g`, `-w`, `-e`, a name, or `--ids`; and `--no-wait` and
//! `--yes` of commands that end one. Entered by the files of the resources, which add their own name to these.

use clap::Args;

use crate::commands::resource_ref::{EXPERIMENT_FLAG, GROUP_FLAG, Name, Target, WORKSPACE_FLAG};
use crate::failure::Failure;

/// Arguments that name one thing.
pub trait Names: Args {
    fn names(&self) -> Vec<Name<'_>>;

    fn target(&self) -> Result<Target, Failure> {
        Target::named(&self.names())
    }
}

/// A workspace, as the parent of something.
#[derive(Args, Debug)]
pub struct WorkspaceArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
}

impl WorkspaceArgs {
    /// Where no workspace is given, this one is meant, and its group where none is given either.
    pub fn default_to(&mut self, group: Option<String>, workspace: Option<String>) {
        if self.workspace.is_none() && workspace.is_some() {
            self.workspace = workspace;
            self.resource_group = self.resource_group.take().or(group);
        }
    }
}

impl Names for WorkspaceArgs {
    fn names(&self) -> Vec<Name<'_>> {
        vec![
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
        ]
    }
}

/// An experiment, as the parent of something.
#[derive(Args, Debug)]
pub struct ExperimentArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the experiment
    #[arg(long, short = 'e', value_name = "EXPERIMENT")]
    experiment: Option<String>,
}

impl Names for ExperimentArgs {
    fn names(&self) -> Vec<Name<'_>> {
        with(&self.workspace, ("experiment", EXPERIMENT_FLAG, self.experiment.as_deref()))
    }
}

/// One resource by its names, or several by their ids.
#[derive(Args, Debug)]
pub struct Chosen<N: Args> {
    #[command(flatten)]
    pub named: N,
    /// Full ids, instead of names
    #[arg(long, num_args = 1.., value_name = "ID")]
    pub ids: Vec<String>,
}

/// For commands that end what they are about.
#[derive(Args, Debug)]
pub struct EndArgs<N: Args> {
    #[command(flatten)]
    pub chosen: Chosen<N>,
    /// Do not wait for the end
    #[arg(long)]
    pub no_wait: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// The names of the parent and one more.
pub fn with<'a>(parent: &'a impl Names, name: Name<'a>) -> Vec<Name<'a>> {
    let mut names = parent.names();
    names.push(name);
    names
}
