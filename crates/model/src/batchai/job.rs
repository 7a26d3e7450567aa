//! Jobs: the specification in `job.json`, and the properties that a response adds to it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BatchAiError, Caffe2Settings, CaffeSettings, CntkSettings, CustomMpiSettings, CustomToolkitSettings,
    EnvironmentVariable, EvictionNotice, JobAnnotations, KeyVaultSecretReference, LostAttempt, MountVolumes,
    Notifications, Provisioning, PyTorchSettings, QueueWait, ResourceId, ScriptSettings, SecretVariable, SizeChange,
    SweepTrial, TensorFlowSettings, ToolType,
};
use crate::time::Span;
use crate::{Secret, Timestamp};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobCreateParameters {
    pub properties: JobSpec,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    #[serde(default)]
    pub scheduling_priority: Priority,
    /// Absent in most files: the client sets it from `--cluster`. The server requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ResourceId>,
    pub node_count: i32,
    /// Between which numbers of nodes the running job may change. Absent for a gang of a fixed size. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_settings: Option<ContainerSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_volumes: Option<MountVolumes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horovod_settings: Option<ScriptSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_toolkit_settings: Option<CustomToolkitSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_mpi_settings: Option<CustomMpiSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntk_settings: Option<CntkSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub py_torch_settings: Option<PyTorchSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_flow_settings: Option<TensorFlowSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caffe_settings: Option<CaffeSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caffe2_settings: Option<Caffe2Settings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chainer_settings: Option<ScriptSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_preparation: Option<JobPreparation>,
    pub std_out_err_path_prefix: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_directories: Vec<InputDirectory>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_directories: Vec<OutputDirectory>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_variables: Vec<EnvironmentVariable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretVariable>,
    #[serde(default)]
    pub constraints: JobConstraints,
    /// Directory in which the processes start, with variables of the job's directories; the job's own directory by default. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Whether each line of output begins with the rank that wrote it: `[3] `. A Corro extension.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefix_output_with_rank: bool,
    /// Python packages that each node installs for the job, once for each content. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_environment: Option<PythonEnvironment>,
    /// Jobs that must succeed before this one starts: `JOB` of the same experiment or `EXPERIMENT/JOB` of the same workspace. A Corro extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Where the server reports that the job starts and ends. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications: Option<Notifications>,
    /// The job's part in a sweep. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Box<SweepTrial>>,
}

impl JobSpec {
    /// Every toolkit whose settings are given; a valid job has exactly one.
    pub fn toolkits(&self) -> impl Iterator<Item = ToolType> {
        let given = |tool: &ToolType| match tool {
            ToolType::Cntk => self.cntk_settings.is_some(),
            ToolType::PyTorch => self.py_torch_settings.is_some(),
            ToolType::TensorFlow => self.tensor_flow_settings.is_some(),
            ToolType::Caffe => self.caffe_settings.is_some(),
            ToolType::Caffe2 => self.caffe2_settings.is_some(),
            ToolType::Chainer => self.chainer_settings.is_some(),
            ToolType::Custom => self.custom_toolkit_settings.is_some(),
            ToolType::CustomMpi => self.custom_mpi_settings.is_some(),
            ToolType::Horovod => self.horovod_settings.is_some(),
        };
        ToolType::ALL.into_iter().filter(given)
    }

    pub fn toolkit(&self) -> Option<ToolType> {
        let mut given = self.toolkits();
        given.next().filter(|_| given.next().is_none())
    }

    /// Number of processes that must exit successfully: one for a plain command, otherwise the requested ranks or
    /// workers.
    pub fn rank_count(&self) -> usize {
        let count = match self.toolkit() {
            Some(ToolType::Custom) => 1,
            Some(ToolType::TensorFlow) => {
                self.tensor_flow_settings.as_ref().and_then(|s| s.worker_count).unwrap_or(self.node_count)
            }
            Some(ToolType::Caffe2) => self.node_count,
            _ => self.process_count(),
        };
        count.max(1) as usize
    }

    /// Number of parameter servers of a TensorFlow job: one by default, and none in a job of one process.
    pub fn parameter_server_count(&self) -> usize {
        let Some(settings) = &self.tensor_flow_settings else { return 0 };
        let alone = self.node_count == 1 && self.rank_count() == 1;
        settings.parameter_server_count.map_or(usize::from(!alone), |count| count.max(0) as usize)
    }

    /// Number of ranks that each node of an elastic job runs, so that the number of ranks follows the number of nodes.
    pub fn ranks_per_node(&self) -> usize {
        self.rank_count().div_ceil(self.node_count.max(1) as usize)
    }

    /// `communicationBackend` of a PyTorch job, in lower case; `gloo` by default.
    pub fn torch_backend(&self) -> Option<String> {
        let settings = self.py_torch_settings.as_ref()?;
        Some(settings.communication_backend.as_deref().unwrap_or("gloo").to_lowercase())
    }

    pub fn uses_torch_mpi(&self) -> bool {
        self.torch_backend().is_some_and(|backend| backend == "mpi")
    }

    /// Total number of processes of an MPI toolkit; one per node by default.
    pub fn process_count(&self) -> i32 {
        let horovod = self.horovod_settings.as_ref().and_then(|s| s.process_count);
        let chainer = self.chainer_settings.as_ref().and_then(|s| s.process_count);
        let mpi = self.custom_mpi_settings.as_ref().and_then(|s| s.process_count);
        let cntk = self.cntk_settings.as_ref().and_then(|s| s.process_count);
        let torch = self.py_torch_settings.as_ref().and_then(|s| s.process_count);
        let caffe = self.caffe_settings.as_ref().and_then(|s| s.process_count);
        horovod.or(chainer).or(mpi).or(cntk).or(torch).or(caffe).unwrap_or(self.node_count)
    }

    /// The `processCount` of the settings that are given, for toolkits that have one.
    pub fn process_count_mut(&mut self) -> Option<&mut Option<i32>> {
        let script = self.horovod_settings.as_mut().or(self.chainer_settings.as_mut());
        let script = script.map(|settings| &mut settings.process_count);
        let mpi = self.custom_mpi_settings.as_mut().map(|settings| &mut settings.process_count);
        let cntk = self.cntk_settings.as_mut().map(|settings| &mut settings.process_count);
        let torch = self.py_torch_settings.as_mut().map(|settings| &mut settings.process_count);
        let caffe = self.caffe_settings.as_mut().map(|settings| &mut settings.process_count);
        script.or(mpi).or(cntk).or(torch).or(caffe)
    }
}

/// Numbers of nodes between which a running job may grow and shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Elastic {
    pub min_node_count: i32,
    pub max_node_count: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSettings {
    pub image_source_registry: ImageSourceRegistry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageSourceRegistry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<RegistryCredentials>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryCredentials {
    pub username: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_reference: Option<KeyVaultSecretReference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobPreparation {
    pub command_line: String,
}

/// The file from which nodes make a job's Python environment; exactly one is given. Paths have variables of the job's directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PythonEnvironment {
    /// Requirements as `pip install -r` reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements_file: Option<String>,
    /// Environment file as `conda env create -f` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conda_file: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputDirectory {
    pub id: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputDirectory {
    pub id: String,
    pub path_prefix: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_suffix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobConstraints {
    #[serde(default = "seven_days")]
    pub max_wall_clock_time: Span,
    /// How often a job is run again after a process failed. A Corro extension.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_retry_count: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Default for JobConstraints {
    fn default() -> Self {
        Self { max_wall_clock_time: seven_days(), max_retry_count: 0 }
    }
}

/// Run time limit of a job that sets none.
pub const DEFAULT_WALL_CLOCK_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

fn seven_days() -> Span {
    Span(DEFAULT_WALL_CLOCK_TIME)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    pub properties: JobProperties,
}

pub const JOB_TYPE: &str = "Microsoft.BatchAI/workspaces/experiments/jobs";

/// Properties of a job. `wire` serializes them in the service's order.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProperties {
    pub experiment_name: Arc<str>,
    pub job_output_directory_path_segment: String,
    pub tool_type: ToolType,
    /// Shared with the server's record, so that a response copies nothing immutable.
    #[serde(flatten)]
    pub spec: Arc<JobSpec>,
    #[serde(flatten)]
    pub provisioning: Provisioning,
    #[serde(flatten)]
    pub status: JobStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    pub execution_state: ExecutionState,
    pub execution_state_transition_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_info: Option<ExecutionInfo>,
    /// Why a queued job waits, in plain words. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Queue position of a queued job and actions that would help. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<QueueWait>,
    /// Set when a running job has to release its nodes, with the reason. A Corro extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giving_way: Option<EvictionNotice>,
    /// Earlier attempts that lost or released their nodes. A Corro extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_attempts: Vec<LostAttempt>,
    /// Last changes of the number of nodes of an elastic job, oldest first. A Corro extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub size_changes: Vec<SizeChange>,
    /// Note, tags and pin. A Corro extension.
    #[serde(default, skip_serializing_if = "JobAnnotations::is_empty")]
    pub annotations: JobAnnotations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionState {
    Queued,
    Running,
    Terminating,
    Succeeded,
    Failed,
}

impl ExecutionState {
    pub fn is_terminal(self) -> bool {
        matches!(self, ExecutionState::Succeeded | ExecutionState::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionInfo {
    pub start_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<BatchAiError>,
}
