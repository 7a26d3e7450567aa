//! Desired state of a node; complete in every message.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ElasticWorld, GangAddress, MountTokenRequest, SharedDiskProbe, TaskOrder, TaskSecret, Volume, VolumeSource,
};
use crate::AttemptId;
use crate::batchai::EnvironmentVariable;
use crate::password::PasswordVerifier;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DesiredNode {
    /// Stop everything, clean up and exit.
    pub retire: bool,
    /// Cluster-level volumes.
    pub volumes: Vec<Volume>,
    /// Lets the node detect whether it shares the server's disk.
    #[serde(default, rename = "landmark")]
    pub shared_disk_probe: Option<SharedDiskProbe>,
    /// Deadline without contact to the server, after which the node must have stopped its processes, since its jobs may
    /// then run elsewhere.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// The cluster's setup task and logins must be isolated, unless the node's operator chose otherwise.
    #[serde(default)]
    pub strict_isolation: bool,
    /// Setup task that runs after the volumes are mounted, before the node is ready.
    #[serde(default)]
    pub setup: Option<SetupOrder>,
    /// SSH login; disabled if absent.
    #[serde(default)]
    pub login: Option<Login>,
    pub task: Option<DesiredTask>,
}

impl DesiredNode {
    /// The same for a node without access to the server's disk: server directories become remote mounts.
    pub fn from_elsewhere(mut self) -> DesiredNode {
        let mounted = |volumes: &mut [Volume], attempt: Option<&AttemptId>| {
            for volume in volumes {
                if let VolumeSource::LocalDirectory(_) = volume.source {
                    let (attempt, relative) = (attempt.cloned(), Some(volume.relative.clone()));
                    volume.source = VolumeSource::Remote(MountTokenRequest { attempt, relative });
                }
            }
        };
        mounted(&mut self.volumes, None);
        if let Some(DesiredTask { order, .. }) = &mut self.task {
            mounted(&mut order.volumes, Some(&order.attempt));
            order.shared_temp = None;
        }
        self
    }
}

/// Administrator of a cluster, who may log in to its nodes. Never holds the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Login {
    pub user: String,
    /// In OpenSSH's format: `ssh-rsa AAAA…`.
    pub public_key: Option<String>,
    pub password: Option<PasswordVerifier>,
}

/// Address of a node's SSH server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshEndpoint {
    pub address: String,
    pub port: u16,
}

/// First port that SSH servers try, as on Azure's nodes; they take the first free one from here.
pub const FIRST_LOGIN_PORT: u16 = 50_000;

/// Environment variables by which an SSH session enters the environment of a job: `WORKSPACE/EXPERIMENT/JOB`, one of
/// its ranks, and whether to include its secrets (`1`).
pub const JOB_VARIABLE: &str = "CORRO_JOB";
pub const RANK_VARIABLE: &str = "CORRO_JOB_RANK";
pub const SECRETS_VARIABLE: &str = "CORRO_JOB_SECRETS";

/// The cluster's setup task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupOrder {
    pub command: String,
    pub std_out_err_path_prefix: String,
    /// `{subscription}/{group}/workspaces/{ws}/clusters/{cluster}/{guid}`
    pub segment: String,
    pub environment: Vec<EnvironmentVariable>,
    pub secrets: Vec<TaskSecret>,
    /// As for jobs.
    #[serde(default)]
    pub shows_secrets: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredTask {
    pub goal: Goal,
    pub order: TaskOrder,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Goal {
    /// Mount, create directories, run job preparation; then wait for the gang.
    Prepare,
    /// The node is the whole gang: prepare and start its ranks at once.
    PrepareAndRun,
    /// Every node is prepared: start this node's ranks.
    Run { gang: GangAddress },
    /// Stop the ranks: SIGTERM, and SIGKILL after `grace_ms`.
    Stop { grace_ms: u64 },
    /// Prepare, then run the processes of an elastic attempt.
    Elastic { world: Arc<ElasticWorld> },
}
