//! The nine toolkits a job can use, each with its own settings. Exactly one is given, and the job's `toolType` follows
//! from it: see [`JobSpec::toolkit`](super::JobSpec::toolkit).

use serde::{Deserialize, Serialize};

/// Settings of toolkits that run one Python script in each process: Horovod and Chainer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptSettings {
    pub python_script_file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count: Option<i32>,
}

/// Settings of CNTK: a BrainScript configuration or a Python script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CntkSettings {
    /// `BrainScript` or `Python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_script_file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PyTorchSettings {
    pub python_script_file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count: Option<i32>,
    /// `TCP`, `Gloo` or `MPI` as in the service, or `NCCL`; compared without case and returned as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_backend: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TensorFlowSettings {
    pub python_script_file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_server_command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_count: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_server_count: Option<i32>,
}

/// Settings of Caffe: a configuration file or a Python script, never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaffeSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_script_file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line_args: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caffe2Settings {
    pub python_script_file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_interpreter_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line_args: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomToolkitSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomMpiSettings {
    pub command_line: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count: Option<i32>,
}

/// Toolkit of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolType {
    Cntk,
    #[serde(rename = "pytorch")]
    PyTorch,
    #[serde(rename = "tensorflow")]
    TensorFlow,
    Caffe,
    Caffe2,
    Chainer,
    Custom,
    #[serde(rename = "custommpi")]
    CustomMpi,
    Horovod,
}

impl ToolType {
    pub const ALL: [ToolType; 9] = [
        ToolType::Cntk,
        ToolType::PyTorch,
        ToolType::TensorFlow,
        ToolType::Caffe,
        ToolType::Caffe2,
        ToolType::Chainer,
        ToolType::Custom,
        ToolType::CustomMpi,
        ToolType::Horovod,
    ];

    /// Name of the toolkit's settings in `job.json`.
    pub fn settings_field(self) -> &'static str {
        match self {
            ToolType::Cntk => "cntkSettings",
            ToolType::PyTorch => "pyTorchSettings",
            ToolType::TensorFlow => "tensorFlowSettings",
            ToolType::Caffe => "caffeSettings",
            ToolType::Caffe2 => "caffe2Settings",
            ToolType::Chainer => "chainerSettings",
            ToolType::Custom => "customToolkitSettings",
            ToolType::CustomMpi => "customMpiSettings",
            ToolType::Horovod => "horovodSettings",
        }
    }
}
