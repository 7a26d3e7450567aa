//! Cleanup after dead agents: kills processes and removes containers that were started from a node's directory. They
//! are found by the directory's incarnation, which only its own agents write: the tag in a process's environment, the
//! node's cgroups, the mount namespace of its job, the label of a container. Never ends anything that another directory
//! started, even if that one's node has the same id.

use std::path::{Path, PathBuf};

use corro_base::procfs;
use corro_launch::kill_tagged::{TAG_VARIABLE, kill_in_mount_namespace, kill_matching_processes, kill_matching_tags};
use corro_model::NodeId;

use crate::container::cleanup::{Owner, remove_owned_blocking};
use crate::identity::incarnation::{self, OwnedIds};
use crate::limits;
use crate::storage::directories;
use crate::storage::tmp_dir;

/// Kills every process that was started from `root` and returns the ids. Blocks until none is left or the rest cannot
/// be killed.
pub fn end_processes(root: &Path, owned: &OwnedIds) -> Vec<u32> {
    if owned.is_empty() {
        return Vec::new();
    }
    let mut killed = kill_matching_tags(|tag| owned.has_tag(tag));
    // Processes that cleared their environment and lost their guard carry no tag.
    killed.extend(owned.iter().flat_map(|id| limits::kill_processes(tmp_dir::dir_name_of(id))));
    killed.extend(kill_in_mount_namespace(&root.join(directories::JOBS)));
    killed.sort_unstable();
    killed.dedup();
    killed
}

/// Kills the processes and removes the containers of the node in `root`, whose agent is dead. Containers are looked up
/// on every engine that listens at `sockets`; the error says why that was not possible.
pub fn end_all(root: &Path, node: &NodeId, sockets: &[PathBuf]) -> Result<EndedLeftovers, String> {
    if !root.exists() {
        // A process with this node id was started from another directory.
        return Ok(EndedLeftovers::default());
    }
    let owned = incarnation::owned_ids(root);
    let (processes, owner) = match incarnation::is_recorded(root) {
        true => (end_processes(root, &owned), Owner::Incarnation(owned)),
        false => (end_unrecorded(root, node), Owner::Directory { node: node.clone(), root: root.to_owned() }),
    };
    Ok(EndedLeftovers { processes, containers: remove_owned_blocking(&owner, sockets)? })
}

/// Leftovers that were ended: process ids and container ids.
#[derive(Debug, Default)]
pub struct EndedLeftovers {
    pub processes: Vec<u32>,
    pub containers: Vec<String>,
}

/// Kills processes of agents of the previous version, which recorded no incarnation. They are identified by the node's
/// id in the tag together with a path below `root` in their environment. Guards end by themselves.
pub fn end_unrecorded(root: &Path, node: &NodeId) -> Vec<u32> {
    let prefix = format!("{node}/");
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let names_root = |pid: i32| {
        let variables = procfs::environment(pid).unwrap_or_default();
        variables.iter().any(|(name, value)| name != TAG_VARIABLE && Path::new(value).starts_with(&root))
    };
    let is_one = |tag: &str| tag.starts_with(&prefix) && incarnation::incarnation_in(tag).is_none();
    kill_matching_processes(is_one, names_root)
}
