//! In-memory state: one immutable snapshot per commit. Its maps share structure, so a snapshot is cheap at any size.
//! Changed only through `Txn`.

use std::sync::Arc;
use std::time::Duration;

use corro_model::batchai::{NodeStateCounts, Priority};
use corro_model::state::NodeState;
use corro_model::{ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, Timestamp, WorkspaceKey};

use crate::index::{Index, QueuedJob};
use crate::records::*;

pub mod kinds;

pub use kinds::Record;

#[derive(Clone, Default)]
pub struct State {
    /// Incremented with every commit of this process.
    pub revision: u64,
    /// Highest submission number; the next job gets the next one.
    pub last_sequence: u64,
    pub instance: Table<String, InstanceRecord>,
    pub principals: Table<String, PrincipalRecord>,
    pub groups: Table<GroupKey, GroupRecord>,
    pub workspaces: Table<WorkspaceKey, WorkspaceRecord>,
    pub experiments: Table<ExperimentKey, ExperimentRecord>,
    pub clusters: Table<ClusterKey, ClusterRecord>,
    pub file_servers: Table<FileServerKey, FileServerRecord>,
    pub nodes: Table<NodeId, NodeRecord>,
    pub jobs: Table<JobKey, JobRecord>,
    pub accounts: Table<String, AccountRecord>,
    pub operations: Table<String, OperationRecord>,
    pub hosts: Table<String, HostRecord>,
    pub host_tokens: Table<String, HostTokenRecord>,
    /// Notifications to deliver, by delivery id.
    pub deliveries: Table<String, DeliveryRecord>,
    index: Index,
}

/// Key of the only instance record.
pub const SELF: &str = "self";

impl State {
    pub fn instance_record(&self) -> Option<&InstanceRecord> {
        self.instance.get(SELF).map(|record| &**record)
    }

    /// Inserts a record and updates the index. Not durable; use `Txn::put` for that.
    pub fn put<R: Record>(&mut self, key: R::Key, record: Arc<R>) {
        let old = R::table_mut(self).insert(key.clone(), record.clone());
        R::reindex(self, &key, old.as_ref(), Some(&record));
    }

    /// Removes a record; `false` if there is none.
    pub fn remove<R: Record>(&mut self, key: &R::Key) -> bool {
        let old = R::table_mut(self).remove(key);
        R::reindex(self, key, old.as_ref(), None);
        old.is_some()
    }

    pub(crate) fn index_node(&mut self, id: &NodeId, old: Option<&Arc<NodeRecord>>, new: Option<&Arc<NodeRecord>>) {
        self.index.node(id, old, new);
    }

    pub(crate) fn index_job(&mut self, key: &JobKey, old: Option<&Arc<JobRecord>>, new: Option<&Arc<JobRecord>>) {
        self.index.job(key, old, new);
        self.index.update_dependencies(key, old, new, &self.jobs);
    }

    pub(crate) fn index_operation(
        &mut self,
        id: &String,
        old: Option<&Arc<OperationRecord>>,
        new: Option<&Arc<OperationRecord>>,
    ) {
        self.index.operation(id, old, new);
    }

    #[cfg(test)]
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub fn nodes_of<'a>(&'a self, cluster: &ClusterKey) -> impl Iterator<Item = (&'a NodeId, &'a NodeRecord)> {
        self.index.nodes(cluster)
    }

    /// Queued jobs of a cluster that wait for nodes: high priority first, then in order of submission.
    pub fn queued_jobs<'a>(&'a self, cluster: &ClusterKey) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        self.index.queue(cluster)
    }

    /// Queued jobs of one priority that wait for nodes, in order of submission.
    pub fn queued_jobs_at<'a>(
        &'a self,
        cluster: &ClusterKey,
        priority: Priority,
    ) -> impl Iterator<Item = QueuedJob<'a>> + use<'a> {
        self.index.queue_at(cluster, priority)
    }

    /// Run times of succeeded jobs of an experiment, last ended first.
    pub fn run_times(&self, experiment: &ExperimentKey) -> impl Iterator<Item = Duration> {
        self.index.run_times(experiment)
    }

    /// Number of queued jobs of a cluster that wait for nodes.
    pub fn queue_length(&self, cluster: &ClusterKey) -> usize {
        self.index.queue_length(cluster)
    }

    /// Queued jobs of a cluster that wait for other jobs.
    pub fn dependent_jobs_of<'a>(
        &'a self,
        cluster: &ClusterKey,
    ) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        self.index.dependent_jobs_of(cluster)
    }

    /// Jobs that have ended or do not exist and that queued jobs still wait for.
    pub fn ended_dependencies(&self) -> impl Iterator<Item = &JobKey> {
        self.index.ended_dependencies()
    }

    /// Queued jobs that wait for this job.
    pub fn dependents_of<'a>(&'a self, job: &JobKey) -> impl Iterator<Item = &'a JobKey> {
        self.index.dependents_of(job)
    }

    /// Running and terminating jobs of a cluster.
    pub fn active_jobs_of<'a>(
        &'a self,
        cluster: &ClusterKey,
    ) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        self.index.active_of(cluster)
    }

    /// Whether principals other than the administrator exist.
    pub fn has_several_principals(&self) -> bool {
        self.principals.len() > 1
    }

    /// Running and terminating jobs, cluster by cluster.
    pub fn active_jobs(&self) -> impl Iterator<Item = (&JobKey, &Arc<JobRecord>)> {
        self.index.active()
    }

    /// Jobs that are deleted once they have ended.
    pub fn deleting_jobs(&self) -> impl Iterator<Item = (&JobKey, &Arc<JobRecord>)> {
        self.index.deleting_jobs().filter_map(|key| self.jobs.get_key_value(key))
    }

    /// Operations that have not ended.
    pub fn open_operations(&self) -> impl Iterator<Item = (&String, &Arc<OperationRecord>)> {
        self.index.open_operations().filter_map(|id| self.operations.get_key_value(id))
    }

    /// Ended operations with their end, oldest first.
    pub fn ended_operations(&self) -> impl Iterator<Item = (Timestamp, &String)> {
        self.index.ended_operations()
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

    pub fn file_servers_of<'a>(
        &'a self,
        workspace: &WorkspaceKey,
    ) -> impl Iterator<Item = (&'a FileServerKey, &'a FileServerRecord)> {
        within(&self.file_servers, workspace.prefix(), FileServerKey::as_str)
    }

    pub fn experiments_of<'a>(
        &'a self,
        workspace: &WorkspaceKey,
    ) -> impl Iterator<Item = (&'a ExperimentKey, &'a ExperimentRecord)> {
        within(&self.experiments, workspace.prefix(), ExperimentKey::as_str)
    }

    /// Jobs of an experiment whose names are not less than `first`, by name.
    pub fn jobs_from<'a>(
        &'a self,
        experiment: &ExperimentKey,
        first: &str,
    ) -> impl Iterator<Item = (&'a JobKey, &'a JobRecord)> {
        let prefix = experiment.prefix();
        let rest = self.jobs.range(experiment.job(first)..);
        rest.take_while(move |(key, _)| key.as_str().starts_with(&prefix)).map(|(key, job)| (key, &**job))
    }

    pub fn jobs_of<'a>(&'a self, experiment: &ExperimentKey) -> impl Iterator<Item = (&'a JobKey, &'a JobRecord)> {
        within(&self.jobs, experiment.prefix(), JobKey::as_str)
    }

    /// Node counts of a cluster by state. Allocating nodes are not counted: they do not exist yet.
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

/// Rows whose key starts with `prefix`, in order, by a range scan.
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
            state.put(GroupKey::new(group).workspace(name), Arc::new(record));
        };
        put("g", "b");
        put("g", "a");
        put("g2", "c");
        put("f", "d");
        let names: Vec<_> = state.workspaces_of(&GroupKey::new("G")).map(|(_, w)| w.name.clone()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
