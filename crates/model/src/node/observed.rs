//! Observed state of a node, its task and its processes.

use serde::{Deserialize, Serialize};

use super::{GangAddress, ObservedElastic, SshEndpoint};
use crate::batchai::{BatchAiError, RankStats};
use crate::gpu::{GpuReading, XidError};
use crate::layout::Role;
use crate::{AttemptId, Timestamp};

/// Horovod timeline of one rank; without a rank, the end of the recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromRecording {
    pub number: u64,
    pub rank: Option<(usize, String)>,
}

/// Process statistics of a node's task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskStats {
    /// Absent if no attempt runs.
    pub attempt: Option<AttemptId>,
    pub processes: Vec<RankStats>,
    /// The GPUs that the attempt may use. Absent from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReading>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Cluster-level volumes are mounted, the setup task has succeeded, and the node accepts tasks.
    pub ready: bool,
    /// Reason why the node can never become ready.
    pub problem: Option<BatchAiError>,
    /// Address by which other nodes reach it. The server passes it on; nodes do not discover addresses.
    #[serde(default)]
    pub address: Option<String>,
    /// SSH server, if logins are enabled.
    #[serde(default)]
    pub login: Option<SshEndpoint>,
    pub task: Option<ObservedTask>,
    /// Time since this agent started the task, by its monotonic clock. Absent from agents of earlier versions, and for
    /// a task that an earlier agent process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run_ms: Option<u64>,
    /// Estimated remaining time of the task, from the epochs that its processes print. Absent without epochs, once the
    /// estimate has passed, and from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_remaining_ms: Option<u64>,
    /// Whether the agent opens tunnels. Absent from agents of earlier versions, which do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tunnels: bool,
    /// The agent is about to exit, as requested.
    pub retired: bool,
    /// The agent is shutting down: its report stays valid, but it accepts nothing new.
    #[serde(default)]
    pub ending: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedTask {
    pub attempt: AttemptId,
    pub phase: TaskPhase,
    /// Ranks of this node that have ended so far.
    pub exits: Vec<RankExit>,
    /// Processes and generations of an elastic attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Box<ObservedElastic>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskPhase {
    Preparing,
    /// Waiting for the gang. The master reports the rendezvous address, and each node its own ports.
    Prepared {
        gang: Option<GangAddress>,
    },
    Running,
    /// No process of the task is left, and all output is in its log.
    Ended {
        failure: Option<TaskFailure>,
    },
}

/// Error code of an attempt that ended with its agent. Not the job's fault, so it may be retried.
pub const AGENT_RESTARTED: &str = "AgentRestarted";

/// Failure of a node's part outside its ranks (mount, preparation, spawn).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub exit_code: Option<i32>,
    pub error: BatchAiError,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankExit {
    /// Number among all processes of the job.
    pub rank: usize,
    #[serde(default)]
    pub role: Role,
    /// Number among the processes of its role.
    #[serde(default)]
    pub index: usize,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Stopped on request, so it is not the cause of the failure.
    pub stopped: bool,
    pub at: Timestamp,
    /// Last lines on stderr.
    pub stderr_tail: String,
    /// Memory limit, in words, that killed processes of this node's part.
    #[serde(default)]
    pub out_of_memory: Option<String>,
    /// Process limit, in words, that prevented processes of this node's part from starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_processes: Option<String>,
    /// Errors of the task's GPUs in the kernel's log. Absent from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_errors: Vec<XidError>,
}

impl RankExit {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Exit code as a shell reports it: 128 + n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.exit_code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}
