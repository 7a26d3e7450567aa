//! Environment of a job on this node: its directories, variables, log directory, confinement and container. Every process of the job is started through it.

use corro_launch::confinement::Confinement;
use corro_launch::namespaces::MountView;
use corro_launch::process_spec::ProcessSpec;
use corro_launch::redact::Secrets;
use corro_model::node::TaskOrder;

use crate::container::exec_relay::ContainerExec;
use crate::output::log_names::LogNames;
use crate::output::output_dir::OutputDir;
use crate::storage::directories::JobDirectories;
use crate::storage::python_cache::CachedEnvironment;
use crate::task::env_vars::Environment;

/// Environment of a job on this node.
#[derive(Debug)]
pub struct JobEnv {
    pub directories: JobDirectories,
    pub environment: Environment,
    /// Directory of the job's logs.
    pub logs: OutputDir,
    pub names: LogNames,
    /// Confinement of every process of the job.
    pub confinement: Confinement,
    /// What its namespaces show, if it has any.
    pub mount_view: MountView,
    /// The container in which the job's processes run, if it has one.
    pub container: Option<ContainerExec>,
    /// The Python environment that the job uses, which stays as long as this.
    pub python: Option<CachedEnvironment>,
}

impl JobEnv {
    /// The process as it must be started for this job. All command lines of a job go through here.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let spec = ProcessSpec { confinement: self.confinement.clone(), ..spec };
        match &self.container {
            Some(exec) => exec.wrap(spec),
            None => spec,
        }
    }
}

/// Line of the execution log about masking, for a job or setup task with secrets.
pub fn secret_masking_note(shows_secrets: bool) -> &'static str {
    match shows_secrets {
        true => "Values of secrets are shown in the output as they are: the server was started with --mask-secrets no",
        false => {
            "Values of secrets, of 8 bytes or more, are shown as *** in the output; the operator of the server can turn that off with --mask-secrets no"
        }
    }
}

/// Secrets to mask: their values as given, and as expanded in the environment.
pub fn job_secrets(order: &TaskOrder, environment: Option<&Environment>) -> Secrets {
    Secrets::new(secret_values(order, environment))
}

pub fn secret_values<'a>(order: &'a TaskOrder, environment: Option<&'a Environment>) -> impl Iterator<Item = &'a str> {
    let given = order.secrets.iter().map(|secret| secret.value.expose());
    let expanded =
        order.secrets.iter().filter_map(move |secret| environment?.variables.get(&secret.name).map(String::as_str));
    given.chain(expanded)
}
