//! What a node sees of itself, of its task and of the processes in it.

use serde::{Deserialize, Serialize};

use super::{GangAddress, SshEndpoint};
use crate::batchai::{BatchAiError, RankStats};
use crate::layout::Role;
use crate::{AttemptId, Timestamp};

/// What one rank recorded, as a timeline of Horovod's; without a rank, that this was all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromRecording {
    pub number: u64,
    pub rank: Option<(usize, String)>,
}

/// What the processes of a node's task use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskStats {
    /// Absent when nothing of any attempt runs.
    pub attempt: Option<AttemptId>,
    pub processes: Vec<RankStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Cluster-level volumes are mounted, the setup task has ended well, and the node can take a task.
    pub ready: bool,
    /// Why the node can never become ready.
    pub problem: Option<BatchAiError>,
    /// At which other nodes reach it. The server hands it to them; nobody else finds out an address.
    #[serde(default)]
    pub address: Option<String>,
    /// Open when someone may log in.
    #[serde(default)]
    pub login: Option<SshEndpoint>,
    pub task: Option<ObservedTask>,
    /// How long ago this agent took up the task, by its monotonic clock, when this was sent. Not told by agents of earlier versions, nor
    /// for a task that an earlier agent of the node took up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run_ms: Option<u64>,
    /// How much longer the task takes when this is sent, estimated from the epochs that its processes print. Absent where they print
    /// none, once the estimate has passed, and from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_remaining_ms: Option<u64>,
    /// The agent is about to exit, as asked.
    pub retired: bool,
    /// The agent was told to end: what it says stays true, but it takes nothing new.
    #[serde(default)]
    pub ending: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedTask {
    pub attempt: AttemptId,
    pub phase: TaskPhase,
    /// Ranks of this node that have ended so far.
    pub exits: Vec<RankExit>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskPhase {
    Preparing,
    /// Waiting for the gang. The master says where the ranks will meet, and each node its own ports.
    Prepared {
        gang: Option<GangAddress>,
    },
    Running,
    /// Nothing of the task runs any more, and every byte it wrote is in its log.
    Ended {
        failure: Option<TaskFailure>,
    },
}

/// The code of the failure of an attempt that ended with its agent: no fault of the job, which may be tried again.
pub const AGENT_RESTARTED: &str = "AgentRestarted";

/// Why a node's part failed before or beside its ranks (mount, preparation, spawn).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub exit_code: Option<i32>,
    pub error: BatchAiError,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankExit {
    /// Its number among all processes of the job.
    pub rank: usize,
    #[serde(default)]
    pub role: Role,
    /// Among those of its role.
    #[serde(default)]
    pub index: usize,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// It was stopped because it had to, so it is not to blame.
    pub stopped: bool,
    pub at: Timestamp,
    /// The last lines it wrote to stderr.
    pub stderr_tail: String,
    /// Processes of its node's part were killed because they were beyond a limit of memory: which one, in words.
    #[serde(default)]
    pub out_of_memory: Option<String>,
    /// Processes of its node's part could not be started because there were too many: the limit, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_processes: Option<String>,
}

impl RankExit {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// As a shell reports it: 128 + n for signal n.
    pub fn shell_code(&self) -> i32 {
        self.exit_code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}
