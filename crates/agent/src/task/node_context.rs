//! Handles that every task of a node shares: configuration, identity, directories, journal, limits, mounts and exec targets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corro_launch::confinement::Confinement;
use corro_model::NodeId;
use corro_model::node::NodeCredential;

use crate::config::{AgentConfig, IsolationMode};
use crate::identity::incarnation::{Incarnation, TagPrefix};
use crate::isolation;
use crate::limits::Cgroups;
use crate::state::attempt_journal::AttemptJournal;
use crate::state::lease::LeaseExpiry;
use crate::storage::directories::Directories;
use crate::storage::mounts::{ClusterVolumes, FuseMounts, MountCommands, MountContext};
use crate::task::exec_target::ExecTargets;

/// What every task of a node shares.
#[derive(Clone, Debug)]
pub struct NodeContext {
    pub config: Arc<AgentConfig>,
    pub node: NodeId,
    /// Of the node's directory: marks everything that is started from it.
    pub incarnation: Incarnation,
    /// What the tags of the node's processes begin with.
    pub tags: TagPrefix,
    /// At which other nodes reach this one.
    pub address: Arc<str>,
    /// For what is asked of the server beside the connection.
    pub credential: Arc<NodeCredential>,
    pub directories: Arc<Directories>,
    pub journal: Arc<AttemptJournal>,
    /// Whether jobs can be isolated on this machine, else why not.
    pub isolation_support: Arc<Result<(), String>>,
    /// Hold the node's processes to its VM size, else say why not.
    pub cgroups: Arc<Cgroups>,
    /// Where the processes of the running task stand.
    pub exec_targets: ExecTargets,
    /// When others may run what this node runs.
    pub lease_expiry: LeaseExpiry,
    /// What is mounted from the server.
    pub fuse_mounts: Arc<FuseMounts>,
    /// The cluster's volumes that are mounted here.
    pub cluster_volumes: ClusterVolumes,
    /// Whether the server orders the cluster's own processes to be isolated strictly.
    pub strict_cluster: Arc<AtomicBool>,
}

impl NodeContext {
    /// Where this node's volumes are mounted.
    pub fn mount_context(&self) -> MountContext<'_> {
        let commands = MountCommands::Cluster;
        let (dir_reuse, fuse_mounts) = (self.directories.dir_reuse(), Some(&*self.fuse_mounts));
        MountContext { node: &self.node, tags: &self.tags, dir_reuse, fuse_mounts, commands }
    }

    /// The confinement of the cluster's own processes where nothing may run without isolation, else none; the error says why it cannot be had.
    /// Blocks for less than a millisecond.
    pub fn confine_cluster_process(&self, home: &Path) -> Result<Confinement, String> {
        let isolation = &self.config.isolation;
        if isolation.mode_for(self.strict_cluster.load(Ordering::Relaxed)) != IsolationMode::Strict {
            return Ok(Confinement::default());
        }
        isolation::confine_cluster(
            isolation,
            &self.isolation_support,
            &self.directories,
            home,
            &self.cluster_volumes.get(),
        )
    }
}
