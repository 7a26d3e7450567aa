//! Arguments of the short commands that name a job or a cluster. Names that are left out are looked up: see [`super::lookup`].

use clap::Args;

use crate::defaults::Defaults;
use crate::error::CliError;
use crate::resource::args::{ResourceNames, with_parent};
use crate::resource::lookup;
use crate::resource::resource_ref::{EXPERIMENT_FLAG, GROUP_FLAG, NameArg, ResourceRef, WORKSPACE_FLAG};
use crate::session::Session;
use crate::stdio::note;

/// Help heading of the names. Set on each argument, because a heading of the group would also apply to the arguments after it.
const HEADING: &str = "Names";

/// Names above a cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkspacePlace {
    /// Name of the resource group [default: looked up]
    #[arg(long, short = 'g', help_heading = HEADING, value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the workspace [default: looked up]
    #[arg(long, short = 'w', help_heading = HEADING, value_name = "WORKSPACE")]
    workspace: Option<String>,
}

impl ResourceNames for WorkspacePlace {
    fn names(&self) -> Vec<NameArg<'_>> {
        vec![
            ("group", GROUP_FLAG, self.resource_group.as_deref()),
            ("workspace", WORKSPACE_FLAG, self.workspace.as_deref()),
        ]
    }
}

/// Names above a job.
#[derive(Args, Clone, Debug, Default)]
pub struct ExperimentPlace {
    #[command(flatten)]
    workspace: WorkspacePlace,
    /// Name of the experiment [default: looked up]
    #[arg(long, short = 'e', help_heading = HEADING, value_name = "EXPERIMENT")]
    experiment: Option<String>,
}

impl ResourceNames for ExperimentPlace {
    fn names(&self) -> Vec<NameArg<'_>> {
        with_parent(&self.workspace, ("experiment", EXPERIMENT_FLAG, self.experiment.as_deref()))
    }
}

/// Arguments that name a job, positional or with `-n`.
#[derive(Args, Debug)]
pub struct JobNameArgs {
    /// Name of the job, or EXPERIMENT/NAME
    #[arg(value_name = "NAME", required_unless_present = "name", conflicts_with = "name")]
    job: Option<String>,
    /// Name of the job, instead of the NAME argument
    #[arg(long, short = 'n', help_heading = HEADING, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: ExperimentPlace,
}

impl JobNameArgs {
    /// Looks the job up.
    pub async fn find(&self, session: &Session) -> Result<ResourceRef, CliError> {
        let name = self.job.as_deref().or(self.name.as_deref()).unwrap_or_default();
        lookup::find_job(session.client()?, &Defaults::load()?, name, &self.place.names()).await
    }
}

/// Arguments that name a job; without a name, the newest job of the project. Only for commands that change nothing.
#[derive(Args, Debug)]
pub struct RecentJobArgs {
    /// Name of the job, or EXPERIMENT/NAME [default: the newest job of the project]
    #[arg(value_name = "NAME", conflicts_with = "name")]
    job: Option<String>,
    /// Name of the job, instead of the NAME argument
    #[arg(long, short = 'n', help_heading = HEADING, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: ExperimentPlace,
}

impl RecentJobArgs {
    /// Looks the job up. Says which one it is if none was named.
    pub async fn find(&self, session: &Session) -> Result<ResourceRef, CliError> {
        let (client, defaults) = (session.client()?, Defaults::load()?);
        if let Some(name) = self.job.as_deref().or(self.name.as_deref()) {
            return lookup::find_job(client, &defaults, name, &self.place.names()).await;
        }
        let target = lookup::find_newest_job(client, &defaults, &self.place.names()).await?;
        let (job, experiment) = (target.name("job"), target.name("experiment"));
        note(format_args!("The newest job is {job} of experiment {experiment}."));
        Ok(target)
    }
}

/// Arguments that name a cluster, positional or with `-n`; without a name the default or the only one.
#[derive(Args, Debug)]
pub struct ClusterNameArgs {
    /// Name of the cluster [default: the only one]
    #[arg(value_name = "NAME", conflicts_with = "name")]
    cluster: Option<String>,
    /// Name of the cluster, instead of the NAME argument
    #[arg(long, short = 'n', help_heading = HEADING, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: WorkspacePlace,
}

impl ClusterNameArgs {
    /// Whether the command line names the cluster.
    pub fn is_named(&self) -> bool {
        self.cluster.is_some() || self.name.is_some()
    }

    /// Looks the cluster up.
    pub async fn find(&self, session: &Session) -> Result<ResourceRef, CliError> {
        let name = self.cluster.as_deref().or(self.name.as_deref());
        lookup::find_cluster(session.client()?, &Defaults::load()?, name, &self.place.names()).await
    }
}
