//! What agents that are dead left on this machine: processes and containers that were started from a node's directory. Found by the
//! directory's incarnation, in what only its own agents write: the tag in a process's environment, the node's control groups, the mount
//! name space of its job, the label of a container. Entered by an agent that starts, and by a server or host when a node is gone.
//! Never ends what another directory started, though its node may have the same id.

use std::path::{Path, PathBuf};

use corro_launch::procfs;
use corro_launch::sweep::{TAG_VARIABLE, sweep_processes, sweep_shown, sweep_where};
use corro_model::NodeId;

use crate::container::cleanup::{Owner, remove_owned_blocking};
use crate::identity::incarnation::{self, OwnedIds};
use crate::limits;
use crate::storage::directories;
use crate::storage::tmp_dir;

/// Kills every process that was started from `root`; gives their ids. Blocks until none is left, or can be killed.
pub fn end_processes(root: &Path, owned: &OwnedIds) -> Vec<u32> {
    if owned.is_empty() {
        return Vec::new();
    }
    let mut killed = sweep_where(|tag| owned.has_tag(tag));
    // These forgot their environment, and lost their guards.
    killed.extend(owned.iter().flat_map(|id| limits::kill_processes(tmp_dir::dir_name_of(id))));
    killed.extend(sweep_shown(&root.join(directories::JOBS)));
    killed.sort_unstable();
    killed.dedup();
    killed
}

/// The same for the directory of a node whose agent is dead, and also its containers, on whatever engine listens at `sockets`. An error says
/// why it cannot be told whether containers are left.
pub fn end_all(root: &Path, node: &NodeId, sockets: &[PathBuf]) -> Result<EndedLeftovers, String> {
    if !root.exists() {
        // Whoever has the same id was started elsewhere.
        return Ok(EndedLeftovers::default());
    }
    let owned = incarnation::owned_ids(root);
    let (processes, owner) = match incarnation::is_recorded(root) {
        true => (end_processes(root, &owned), Owner::Incarnation(owned)),
        false => (end_unrecorded(root, node), Owner::Directory { node: node.clone(), root: root.to_owned() }),
    };
    Ok(EndedLeftovers { processes, containers: remove_owned_blocking(&owner, sockets)? })
}

/// What was ended.
#[derive(Debug, Default)]
pub struct EndedLeftovers {
    pub processes: Vec<u32>,
    pub containers: Vec<String>,
}

/// Agents of the last version wrote down no incarnation. Their processes carry the node's id, and paths in its directory; guards end by themselves.
pub fn end_unrecorded(root: &Path, node: &NodeId) -> Vec<u32> {
    let prefix = format!("{node}/");
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let names_root = |pid: i32| {
        let variables = procfs::variables_of(pid).unwrap_or_default();
        variables.iter().any(|(name, value)| name != TAG_VARIABLE && Path::new(value).starts_with(&root))
    };
    let is_one = |tag: &str| tag.starts_with(&prefix) && incarnation::incarnation_in(tag).is_none();
    sweep_processes(is_one, names_root)
}
