//! What rules know of a job besides its output: its specification, the VM size of its cluster, its files. Names the
//! fields that a piece of advice is about. Pure.

use super::project::ProjectFiles;
use crate::batchai::{JobSpec, ToolType};
use crate::vm_size::{self, VmSize};

#[derive(Clone, Copy, Debug)]
pub struct JobFacts<'a> {
    pub spec: &'a JobSpec,
    /// The failed process is the job preparation.
    pub is_preparation: bool,
    /// VM size of the cluster; unknown once the cluster is deleted.
    pub vm_size: Option<&'a str>,
    /// Files of the job, if they are on a share.
    pub project: Option<&'a ProjectFiles>,
}

impl JobFacts<'_> {
    /// Number of ranks on the node with the most of them.
    pub fn ranks_per_node(&self) -> usize {
        let nodes = usize::try_from(self.spec.node_count).unwrap_or_default().max(1);
        self.spec.rank_count().div_ceil(nodes)
    }

    pub fn size(&self) -> Option<&'static VmSize> {
        vm_size::find(self.vm_size?)
    }

    pub fn is_in_container(&self) -> bool {
        self.spec.container_settings.is_some()
    }

    fn settings_field(&self) -> &'static str {
        self.spec.toolkit().map_or("customToolkitSettings", ToolType::settings_field)
    }

    /// Field with the command line or the arguments of the failed process.
    pub fn command_field(&self) -> String {
        if self.is_preparation {
            return "jobPreparation.commandLine".to_owned();
        }
        let settings = self.settings_field();
        match self.spec.toolkit() {
            None | Some(ToolType::Custom | ToolType::CustomMpi) => format!("{settings}.commandLine"),
            Some(ToolType::TensorFlow) => format!("{settings}.workerCommandLineArgs"),
            Some(_) => format!("{settings}.commandLineArgs"),
        }
    }

    /// Field with the Python interpreter, in toolkits that run a script.
    pub fn interpreter_field(&self) -> Option<String> {
        match self.spec.toolkit()? {
            ToolType::Custom | ToolType::CustomMpi => None,
            _ => Some(format!("{}.pythonInterpreterPath", self.settings_field())),
        }
    }

    /// Field with the path of the script, in toolkits that run one.
    pub fn script_field(&self) -> Option<String> {
        match self.spec.toolkit()? {
            ToolType::Custom | ToolType::CustomMpi => None,
            _ => Some(format!("{}.pythonScriptFilePath", self.settings_field())),
        }
    }

    /// Field with the number of ranks, in toolkits that have one.
    pub fn process_count_field(&self) -> Option<String> {
        match self.spec.toolkit()? {
            ToolType::Custom | ToolType::Caffe2 => None,
            ToolType::TensorFlow => Some("tensorFlowSettings.workerCount".to_owned()),
            _ => Some(format!("{}.processCount", self.settings_field())),
        }
    }

    /// Sentence that says how to install packages with the job.
    pub fn install(&self, packages: &str) -> String {
        let command = format!("pip install {packages}");
        let environment = self.spec.python_environment.as_ref();
        if let Some(file) = environment.and_then(|environment| environment.conda_file.as_deref()) {
            return format!("Add '{packages}' to the dependencies in {file} (pythonEnvironment.condaFile).");
        }
        if let Some(file) = environment.and_then(|environment| environment.requirements_file.as_deref()) {
            return format!(
                "Add '{packages}' to {file} (pythonEnvironment.requirementsFile), or to --pip of 'corro submit'."
            );
        }
        if self.spec.job_preparation.is_some() {
            return format!("Add '{command}' to jobPreparation.commandLine in the job file.");
        }
        format!(
            "Install it with the job: 'corro submit --pip {packages}'; or, in the job file, name a requirements file in \
             pythonEnvironment.requirementsFile or add \"jobPreparation\": {{\"commandLine\": \"{command}\"}}."
        )
    }

    /// Sentence that says how to set a variable for the job.
    pub fn set_variable(&self, name: &str, value: &str) -> String {
        format!(
            "Set {name}={value} for the job: 'corro submit --env {name}={value}', or {{\"name\": \"{name}\", \"value\": \
             \"{value}\"}} in environmentVariables of the job file."
        )
    }
}
