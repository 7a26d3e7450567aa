//! The nine kinds of work a job can be, each with its own settings. Exactly one is given; the job's `toolType` follows
//! from it. [`JobSpec::toolkit`](super::JobSpec::toolkit) finds which.

use serde::{Deserialize, Serialize};

/// Settings of every kind that runs one Python script in each process.
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

/// Which kind of work a job is.
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

    /// The name of its settings in `job.json`.
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

    /// The kinds that nodes can run today.
    pub fn can_run(self) -> bool {
        matches!(self, ToolType::Horovod | ToolType::Custom | ToolType::CustomMpi)
    }
}
