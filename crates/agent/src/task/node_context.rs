//! Handles that all tasks of a node share: configuration, identity, directories, journal, limits, mounts and exec
//! targets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corro_launch::confinement::Confinement;
use corro_model::NodeId;
use corro_model::node::NodeCredential;

use crate::config::{AgentConfig, IsolationMode};
use crate::gpu::monitor::GpuMonitor;
use crate::identity::incarnation::{Incarnation, TagPrefix};
use crate::isolation;
use crate::limits::Cgroups;
use crate::state::attempt_journal::AttemptJournal;
use crate::state::lease::LeaseExpiry;
use crate::storage::directories::Directories;
use crate::storage::mounts::{ClusterVolumes, FuseMounts, MountCommands, MountContext};
use crate::storage::python_cache::PythonCache;
use crate::task::exec_target::ExecTargets;

/// Shared handles of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeContext {
    pub config: Arc<AgentConfig>,
    pub node: NodeId,
    /// Incarnation of the node's directory, which marks everything started from it.
    pub incarnation: Incarnation,
    /// Tag prefix of the node's processes.
    pub tags: TagPrefix,
    /// Address at which other nodes reach this one.
    pub address: Arc<str>,
    /// For requests to the server outside of the WebSocket.
    pub credential: Arc<NodeCredential>,
    pub directories: Arc<Directories>,
    /// Python environments of jobs.
    pub python_cache: Arc<PythonCache>,
    pub journal: Arc<AttemptJournal>,
    /// Whether jobs can be isolated on this machine; the error says why not.
    pub isolation_support: Arc<Result<(), String>>,
    /// Cgroups of the node, or why there are none.
    pub cgroups: Arc<Cgroups>,
    /// The running task as a target of `job exec`.
    pub exec_targets: ExecTargets,
    /// When the lease expires and the job may run elsewhere.
    pub lease_expiry: LeaseExpiry,
    /// FUSE mounts from the server.
    pub fuse_mounts: Arc<FuseMounts>,
    /// The cluster's volumes that are mounted here.
    pub cluster_volumes: ClusterVolumes,
    /// Whether the server orders strict isolation of the cluster's own processes.
    pub strict_cluster: Arc<AtomicBool>,
    /// The GPUs of the running task.
    pub gpus: GpuMonitor,
}

impl NodeContext {
    /// Handles for mounting the cluster's volumes.
    pub fn mount_context(&self) -> MountContext<'_> {
        let commands = MountCommands::Cluster;
        let (dir_reuse, fuse_mounts) = (self.directories.dir_reuse(), Some(&*self.fuse_mounts));
        MountContext { node: &self.node, tags: &self.tags, dir_reuse, fuse_mounts, commands }
    }

    /// Confinement of a process of the cluster (setup task, SSH login): namespaces in strict mode, else none. The error
    /// says why they cannot be created. Blocks for less than a millisecond.
    pub fn confine_cluster_process(&self, home: &Path) -> Result<Confinement, String> {
        let isolation = &self.config.isolation;
        if isolation.mode_for(self.strict_cluster.load(Ordering::Relaxed)) != IsolationMode::Strict {
            return Ok(Confinement::default());
        }
        let own = [self.directories.root(), self.python_cache.root()];
        let shown = [home, &self.directories.mount_root()];
        isolation::confine_cluster(isolation, &self.isolation_support, &own, shown, &self.cluster_volumes.get())
    }
}
