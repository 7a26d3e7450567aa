//! The whole state in memory: one immutable snapshot per commit. Maps share structure, so a snapshot is cheap to take
//! however large it is. Entered by every reader; changed only through `Txn`.

use std::sync::Arc;

use corro_model::batchai::NodeStateCounts;
use corro_model::state::NodeState;
use corro_model::{ClusterKey, ExperimentKey, GroupKey, JobKey, NodeId, WorkspaceKey};
use imbl::OrdMap;

use crate::records::*;

pub type Table<K, R> = OrdMap<K, Arc<R>>;

#[derive(Clone, Default)]
pub struct State {
    /// Rises by one with every commit of this process.
    pub revision: u64,
    /// The highest job sequence seen; the next job gets the next number.
    pub last_sequence: u64,
    pub instance: Table<String, InstanceRecord>,
    pub principals: Table<String, PrincipalRecord>,
    pub groups: Table<GroupKey, GroupRecord>,
    pub workspaces: Table<WorkspaceKey, WorkspaceRecord>,
    pub experiments: Table<ExperimentKey, ExperimentRecord>,
    pub clusters: Table<ClusterKey, ClusterRecord>,
    pub nodes: Table<NodeId, NodeRecord>,
    pub jobs: Table<JobKey, JobRecord>,
    pub accounts: Table<String, AccountRecord>,
    pub operations: Table<String, OperationRecord>,
}

/// The key of the one instance record.
pub const SELF: &str = "self";

impl State {
    pub fn this(&self) -> Option<&InstanceRecord> {
        self.instance.get(SELF).map(|record| &**record)
    }

    pub fn nodes_of<'a>(&'a self, cluster: &'a ClusterKey) -> impl Iterator<Item = (&'a NodeId, &'a NodeRecord)> {
        self.nodes.iter().filter(move |(_, node)| node.cluster == *cluster).map(|(id, node)| (id, &**node))
    }

    pub fn workspaces_of<'a>(
        &'a self,
        group: &GroupKey,
    ) -> impl Iterator<Item = (&'a WorkspaceKey, &'a WorkspaceRecord)> {
        within(&self.workspaces, group.prefix(), WorkspaceKey::as_str)
    }

    pub fn clusters_of<'a>(
        &'a self,
        workspace: &WorkspaceKey,
    ) -> impl Iterator<Item = (&'a ClusterKey, &'a ClusterRecord)> {
        within(&self.clusters, workspace.prefix(), ClusterKey::as_str)
    }

    pub fn experiments_of<'a>(
        &'a self,
        workspace: &WorkspaceKey,
    ) -> impl Iterator<Item = (&'a ExperimentKey, &'a ExperimentRecord)> {
        within(&self.experiments, workspace.prefix(), ExperimentKey::as_str)
    }

    pub fn jobs_of<'a>(&'a self, experiment: &ExperimentKey) -> impl Iterator<Item = (&'a JobKey, &'a JobRecord)> {
        within(&self.jobs, experiment.prefix(), JobKey::as_str)
    }

    /// How the nodes of a cluster stand. Allocating ones are not counted: they do not exist yet.
    pub fn node_counts(&self, cluster: &ClusterKey) -> NodeStateCounts {
        let mut counts = NodeStateCounts::default();
        for (_, node) in self.nodes_of(cluster) {
            match node.state() {
                NodeState::Allocating => {}
                NodeState::Preparing => counts.preparing_node_count += 1,
                NodeState::Idle => counts.idle_node_count += 1,
                NodeState::Running { .. } => counts.running_node_count += 1,
                NodeState::Leaving => counts.leaving_node_count += 1,
                NodeState::Unusable { .. } => counts.unusable_node_count += 1,
            }
        }
        counts
    }
}

/// The rows whose key starts with `prefix`, in order, without looking at the others.
fn within<'a, K, R>(
    table: &'a Table<K, R>,
    prefix: String,
    text: fn(&K) -> &str,
) -> impl Iterator<Item = (&'a K, &'a R)>
where
    K: Ord + Clone + serde::de::DeserializeOwned,
    R: 'a,
{
    let first: K = serde_json::from_value(serde_json::Value::String(prefix.clone())).expect("keys are plain text");
    table
        .range(first..)
        .take_while(move |(key, _)| text(key).starts_with(&prefix))
        .map(|(key, record)| (key, &**record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::Timestamp;
    use corro_model::batchai::{Provisioning, ProvisioningState};

    #[test]
    fn children_are_found_by_prefix_and_siblings_are_not() {
        let mut state = State::default();
        let now = Timestamp::from_millis(0);
        let mut put = |group: &str, name: &str| {
            let record = WorkspaceRecord {
                name: name.to_owned(),
                location: String::new(),
                tags: Default::default(),
                provisioning: Provisioning::new(ProvisioningState::Succeeded, now),
            };
            state.workspaces.insert(GroupKey::new(group).workspace(name), Arc::new(record));
        };
        put("g", "b");
        put("g", "a");
        put("g2", "c");
        put("f", "d");
        let names: Vec<_> = state.workspaces_of(&GroupKey::new("G")).map(|(_, w)| w.name.clone()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
