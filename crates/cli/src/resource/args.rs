//! Arguments that select resources: `-g`, `-w`, `-e`, a name, or `--ids`; and `--no-wait` and `--yes` of commands that delete or terminate them.

use clap::Args;

use crate::error::CliError;
use crate::resource::resource_ref::{EXPERIMENT_FLAG, GROUP_FLAG, NameArg, ResourceRef, WORKSPACE_FLAG};

/// Arguments that name one resource.
pub trait ResourceNames: Args {
    fn names(&self) -> Vec<NameArg<'_>>;

    fn target(&self) -> Result<ResourceRef, CliError> {
        ResourceRef::from_names(&self.names())
    }
}

/// Arguments that name a workspace, as the parent of a resource.
#[derive(Args, Debug)]
pub struct WorkspaceArgs {
    /// Name of the resource group [default: $AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    workspace: Option<String>,
}

impl WorkspaceArgs {
    /// Sets the workspace if none was given, and the group if none was given either.
    pub fn set_default(&mut self, group: Option<String>, workspace: Option<String>) {
        if self.workspace.is_none() && workspace.is_some() {
            self.workspace = workspace;
            self.resource_group = self.resource_group.take().or(group);
        }
    }
}

impl ResourceNames for WorkspaceArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        vec![
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
        ]
    }
}

/// Arguments that name an experiment, as the parent of a resource.
#[derive(Args, Debug)]
pub struct ExperimentArgs {
    #[command(flatten)]
    workspace: WorkspaceArgs,
    /// Name of the experiment
    #[arg(long, short = 'e', value_name = "EXPERIMENT")]
    experiment: Option<String>,
}

impl ResourceNames for ExperimentArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("experiment", EXPERIMENT_FLAG, self.experiment.as_deref()))
    }
}

/// One resource by its names, or several by their full ids.
#[derive(Args, Debug)]
pub struct ResourceSelection<N: Args> {
    #[command(flatten)]
    pub named: N,
    /// Full resource ids, separated by spaces, instead of names
    #[arg(long, num_args = 1.., value_name = "ID")]
    pub ids: Vec<String>,
}

/// Arguments of commands that delete or terminate resources.
#[derive(Args, Debug)]
pub struct EndArgs<N: Args> {
    #[command(flatten)]
    pub selection: ResourceSelection<N>,
    /// Return at once, without waiting for the operation to finish
    #[arg(long)]
    pub no_wait: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// The names of the parent, followed by `name`.
pub fn with_parent<'a>(parent: &'a impl ResourceNames, name: NameArg<'a>) -> Vec<NameArg<'a>> {
    let mut names = parent.names();
    names.push(name);
    names
}
