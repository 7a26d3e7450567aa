//! Environment of a job on this node: its directories, variables, log directory, confinement and container. Every process of the job is started through it.

use corro_launch::confinement::Confinement;
use corro_launch::process::ProcessSpec;
use corro_launch::redact::Secrets;
use corro_model::node::TaskOrder;

use crate::container::exec_relay::ContainerExec;
use crate::output::log_names::LogNames;
use crate::output::output_dir::OutputDir;
use crate::storage::directories::JobDirectories;
use crate::task::env_vars::Environment;

/// What the job stands on.
#[derive(Debug)]
pub struct JobEnv {
    pub directories: JobDirectories,
    pub environment: Environment,
    /// Where the job's logs are written.
    pub logs: OutputDir,
    pub names: LogNames,
    /// What every process of the job is kept from.
    pub confinement: Confinement,
    /// Where the job's processes run, if not on the node itself.
    pub container: Option<ContainerExec>,
}

impl JobEnv {
    /// The process as it has to be started for this job. Everything that a job's command lines become goes through here.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let spec = ProcessSpec { confinement: self.confinement.clone(), ..spec };
        match &self.container {
            Some(exec) => exec.wrap(spec),
            None => spec,
        }
    }
}

/// For the execution log of a job or setup task that has secrets.
pub fn secret_masking_note(shows_secrets: bool) -> &'static str {
    match shows_secrets {
        true => "Values of secrets are shown in the output as they are: the server was started with --mask-secrets no",
        false => {
            "Values of secrets, of 8 bytes or more, are shown as *** in the output; the operator of the server can turn that off with --mask-secrets no"
        }
    }
}

/// What must not be shown of this job: secrets as they were given, and as its processes see them.
pub fn job_secrets(order: &TaskOrder, environment: Option<&Environment>) -> Secrets {
    let given = order.secrets.iter().map(|secret| secret.value.expose());
    let seen = order.secrets.iter().filter_map(|secret| environment?.variables.get(&secret.name).map(String::as_str));
    Secrets::new(given.chain(seen))
}
