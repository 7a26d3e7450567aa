//! What the server wants of a node: all of it, in every message.

use serde::{Deserialize, Serialize};

use super::{GangAddress, MountTokenRequest, SharedDiskProbe, TaskOrder, TaskSecret, Volume, VolumeSource};
use crate::AttemptId;
use crate::batchai::EnvironmentVariable;
use crate::password::PasswordVerifier;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DesiredNode {
    /// Stop everything, clean up and exit.
    pub retire: bool,
    /// Cluster-level volumes.
    pub volumes: Vec<Volume>,
    /// Shows the node whether it sees the server's directories.
    #[serde(default, rename = "landmark")]
    pub shared_disk_probe: Option<SharedDiskProbe>,
    /// Nobody but the node itself can end what it runs: it must have done so when it has not reached the server for this
    /// long, as its jobs may then be tried elsewhere.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// The cluster's setup task and logins must be isolated, unless the operator of the node chose otherwise.
    #[serde(default)]
    pub strict_isolation: bool,
    /// What runs once the volumes are there, before the node is ready.
    #[serde(default)]
    pub setup: Option<SetupOrder>,
    /// Who may log in; nobody without.
    #[serde(default)]
    pub login: Option<Login>,
    pub task: Option<DesiredTask>,
}

impl DesiredNode {
    /// The same to a node that does not see the server's directories: whatever lies in them it mounts.
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

/// The administrator of a cluster, who may log in to its nodes. Never holds the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Login {
    pub user: String,
    /// In OpenSSH's form: `ssh-rsa AAAA…`.
    pub public_key: Option<String>,
    pub password: Option<PasswordVerifier>,
}

/// Where a node's SSH server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshEndpoint {
    pub address: String,
    pub port: u16,
}

/// Login doors take the first free port from here upwards, as the service's nodes did.
pub const FIRST_LOGIN_PORT: u16 = 50_000;

/// Variables by which somebody who logs in asks to stand beside the processes of a job: `WORKSPACE/EXPERIMENT/JOB`, one of
/// its ranks, and whether its secrets are wanted (`1`).
pub const JOB_VARIABLE: &str = "CORRO_JOB";
pub const RANK_VARIABLE: &str = "CORRO_JOB_RANK";
pub const SECRETS_VARIABLE: &str = "CORRO_JOB_SECRETS";

/// The cluster's setup task, as one node runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupOrder {
    pub command: String,
    pub std_out_err_path_prefix: String,
    /// `{subscription}/{group}/workspaces/{ws}/clusters/{cluster}/{guid}`
    pub segment: String,
    pub environment: Vec<EnvironmentVariable>,
    pub secrets: Vec<TaskSecret>,
    /// As of jobs.
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
    /// Mounts, directories, job preparation; then wait for the gang.
    Prepare,
    /// The node is the whole gang: prepare and start its ranks, without asking in between.
    PrepareAndRun,
    /// Every node is prepared: start this node's ranks.
    Run { gang: GangAddress },
    /// Stop the ranks: first politely, then after `grace_ms` for good.
    Stop { grace_ms: u64 },
}
