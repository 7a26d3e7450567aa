//! Secondary indexes of the snapshot: nodes, queue and active jobs of each cluster, dependencies between jobs, jobs that
//! are being deleted, open and ended operations. Their cost does not depend on jobs that ended long ago.
//!
//! Changed only by [`State::put`](crate::State::put) and [`State::remove`](crate::State::remove), together with the
//! tables. Derived data: built from the tables at start.

mod dependencies;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use corro_model::batchai::{Elastic, Priority};
use corro_model::state::JobState;
use corro_model::{ClusterKey, ExperimentKey, JobKey, NodeId, Timestamp};
use imbl::{OrdMap, OrdSet};

use self::dependencies::DependencyIndex;
use crate::records::{JobRecord, NodeRecord, OperationRecord, Table};

/// Queued job, reduced to the fields that the scheduler reads.
#[derive(Clone, Copy, Debug)]
pub struct QueuedJob<'a> {
    pub key: &'a JobKey,
    pub sequence: u64,
    pub submitted: Timestamp,
    pub node_count: i32,
    pub elastic: Option<Elastic>,
    pub limit: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Only clusters with at least one entry.
    clusters: OrdMap<ClusterKey, ClusterIndex>,
    deleting_jobs: OrdSet<JobKey>,
    dependencies: DependencyIndex,
    /// Run times of succeeded jobs by experiment, keyed by end and sequence number.
    run_times: OrdMap<ExperimentKey, OrdMap<(Timestamp, u64), Duration>>,
    open_operations: OrdSet<String>,
    /// Ordered by end time.
    ended_operations: OrdSet<(Timestamp, String)>,
}

/// Index entries of one cluster.
#[derive(Clone, Debug, Default)]
struct ClusterIndex {
    nodes: Table<NodeId, NodeRecord>,
    queue: OrdMap<QueueKey, QueueEntry>,
    /// Queued jobs that wait for other jobs; the planner does not see them.
    dependent: Table<JobKey, JobRecord>,
    active: Table<JobKey, JobRecord>,
}

/// Queue entry with the fields that the planner reads, so that a scan of a long queue touches no records.
#[derive(Clone, Debug)]
struct QueueEntry {
    key: JobKey,
    job: Arc<JobRecord>,
    submitted: Timestamp,
    node_count: i32,
    elastic: Option<Elastic>,
    limit: Duration,
}

impl QueueEntry {
    fn new(key: &JobKey, job: &Arc<JobRecord>) -> Self {
        let (submitted, limit) = (job.submitted(), job.spec.constraints.max_wall_clock_time.0);
        let (node_count, elastic) = (job.spec.node_count, job.spec.elastic);
        Self { key: key.clone(), job: job.clone(), submitted, node_count, elastic, limit }
    }
}

/// Sort key of a queued job: high priority first, then order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    priority: Reverse<Priority>,
    sequence: u64,
}

impl Index {
    pub(crate) fn nodes<'a>(&'a self, cluster: &ClusterKey) -> impl Iterator<Item = (&'a NodeId, &'a NodeRecord)> {
        let own = self.clusters.get(cluster).into_iter();
        own.flat_map(|own| own.nodes.iter().map(|(id, node)| (id, &**node)))
    }

    pub(crate) fn queue<'a>(&'a self, cluster: &ClusterKey) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        let own = self.clusters.get(cluster).into_iter();
        own.flat_map(|own| own.queue.values().map(|queued| (&queued.key, &queued.job)))
    }

    pub(crate) fn queue_at<'a>(
        &'a self,
        cluster: &ClusterKey,
        priority: Priority,
    ) -> impl Iterator<Item = QueuedJob<'a>> + use<'a> {
        let queue_key = move |sequence| QueueKey { priority: Reverse(priority), sequence };
        let own = self.clusters.get(cluster).into_iter();
        let brief = |(queue_key, queued): (&'a QueueKey, &'a QueueEntry)| {
            let QueueEntry { ref key, submitted, node_count, elastic, limit, .. } = *queued;
            QueuedJob { key, sequence: queue_key.sequence, submitted, node_count, elastic, limit }
        };
        own.flat_map(move |own| own.queue.range(queue_key(0)..=queue_key(u64::MAX)).map(brief))
    }

    pub(crate) fn run_times(&self, experiment: &ExperimentKey) -> impl Iterator<Item = Duration> {
        self.run_times.get(experiment).into_iter().flat_map(|times| times.iter().rev().map(|(_, time)| *time))
    }

    pub(crate) fn queue_length(&self, cluster: &ClusterKey) -> usize {
        self.clusters.get(cluster).map_or(0, |own| own.queue.len())
    }

    pub(crate) fn dependent_jobs_of<'a>(
        &'a self,
        cluster: &ClusterKey,
    ) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        self.clusters.get(cluster).into_iter().flat_map(|own| own.dependent.iter())
    }

    pub(crate) fn ended_dependencies(&self) -> impl Iterator<Item = &JobKey> {
        self.dependencies.ended.iter()
    }

    pub(crate) fn dependents_of<'a>(&'a self, job: &JobKey) -> impl Iterator<Item = &'a JobKey> {
        self.dependencies.dependents.get(job).into_iter().flat_map(|dependents| dependents.iter())
    }

    pub(crate) fn active_of<'a>(
        &'a self,
        cluster: &ClusterKey,
    ) -> impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)> {
        self.clusters.get(cluster).into_iter().flat_map(|own| own.active.iter())
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = (&JobKey, &Arc<JobRecord>)> {
        self.clusters.values().flat_map(|own| own.active.iter())
    }

    pub(crate) fn deleting_jobs(&self) -> impl Iterator<Item = &JobKey> {
        self.deleting_jobs.iter()
    }

    pub(crate) fn open_operations(&self) -> impl Iterator<Item = &String> {
        self.open_operations.iter()
    }

    pub(crate) fn ended_operations(&self) -> impl Iterator<Item = (Timestamp, &String)> {
        self.ended_operations.iter().map(|(ended, id)| (*ended, id))
    }

    /// Updates the index after a node was added, changed or removed.
    pub(crate) fn node(&mut self, id: &NodeId, old: Option<&Arc<NodeRecord>>, new: Option<&Arc<NodeRecord>>) {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.cluster != old.cluster)) {
            self.within(&old.cluster, |own| _ = own.nodes.remove(id));
        }
        if let Some(new) = new {
            self.within(&new.cluster, |own| _ = own.nodes.insert(id.clone(), new.clone()));
        }
    }

    /// Updates the index after a job was added, changed or removed.
    pub(crate) fn job(&mut self, key: &JobKey, old: Option<&Arc<JobRecord>>, new: Option<&Arc<JobRecord>>) {
        let (was, is) = (old.and_then(|job| JobSlot::from_record(job)), new.and_then(|job| JobSlot::from_record(job)));
        if let Some(old) = old
            && was != is
        {
            match was {
                Some(JobSlot::Queued(_, queue_key)) => {
                    self.within(&old.cluster, |own| _ = own.queue.remove(&queue_key))
                }
                Some(JobSlot::Dependent(_)) => self.within(&old.cluster, |own| _ = own.dependent.remove(key)),
                Some(JobSlot::Active(_)) => self.within(&old.cluster, |own| _ = own.active.remove(key)),
                None => {}
            }
        }
        if let Some(new) = new {
            match is {
                Some(JobSlot::Queued(cluster, queue_key)) => {
                    self.within(cluster, |own| _ = own.queue.insert(queue_key, QueueEntry::new(key, new)));
                }
                Some(JobSlot::Dependent(cluster)) => {
                    self.within(cluster, |own| _ = own.dependent.insert(key.clone(), new.clone()));
                }
                Some(JobSlot::Active(cluster)) => {
                    self.within(cluster, |own| _ = own.active.insert(key.clone(), new.clone()));
                }
                None => {}
            }
        }
        old.into_iter().for_each(|old| self.run_time(key, old, true));
        new.into_iter().for_each(|new| self.run_time(key, new, false));
        let deleting = |job: Option<&Arc<JobRecord>>| job.is_some_and(|job| job.provisioning.is_deleting());
        match (deleting(old), deleting(new)) {
            (false, true) => _ = self.deleting_jobs.insert(key.clone()),
            (true, false) => _ = self.deleting_jobs.remove(key),
            _ => {}
        }
    }

    /// Updates the dependencies after a job was added, changed or removed. `jobs` includes the change.
    pub(crate) fn update_dependencies(
        &mut self,
        key: &JobKey,
        old: Option<&Arc<JobRecord>>,
        new: Option<&Arc<JobRecord>>,
        jobs: &Table<JobKey, JobRecord>,
    ) {
        self.dependencies.update(key, old, new, jobs);
    }

    /// Adds or removes the run time of a succeeded job.
    fn run_time(&mut self, key: &JobKey, job: &JobRecord, gone: bool) {
        let JobState::Succeeded { started, ended } = *job.state() else { return };
        let (experiment, queue_key) = (key.experiment(), (ended, job.sequence));
        let times = self.run_times.entry(experiment.clone()).or_default();
        if !gone {
            times.insert(queue_key, ended.since(started));
            return;
        }
        times.remove(&queue_key);
        if times.is_empty() {
            self.run_times.remove(&experiment);
        }
    }

    /// Updates the index after an operation was added, changed or removed.
    pub(crate) fn operation(
        &mut self,
        id: &String,
        old: Option<&Arc<OperationRecord>>,
        new: Option<&Arc<OperationRecord>>,
    ) {
        match old.map(|old| old.ended) {
            Some(Some(ended)) => _ = self.ended_operations.remove(&(ended, id.clone())),
            Some(None) => _ = self.open_operations.remove(id),
            None => {}
        }
        match new.map(|new| new.ended) {
            Some(Some(ended)) => _ = self.ended_operations.insert((ended, id.clone())),
            Some(None) => _ = self.open_operations.insert(id.clone()),
            None => {}
        }
    }

    /// Changes the entries of one cluster, and drops the cluster when none are left.
    fn within(&mut self, cluster: &ClusterKey, change: impl FnOnce(&mut ClusterIndex)) {
        if !self.clusters.contains_key(cluster) {
            self.clusters.insert(cluster.clone(), ClusterIndex::default());
        }
        let own = self.clusters.get_mut(cluster).expect("it was put there just now");
        change(own);
        if own.nodes.is_empty() && own.queue.is_empty() && own.dependent.is_empty() && own.active.is_empty() {
            self.clusters.remove(cluster);
        }
    }
}

/// Index that holds an unfinished job.
#[derive(PartialEq, Eq)]
enum JobSlot<'a> {
    Queued(&'a ClusterKey, QueueKey),
    Dependent(&'a ClusterKey),
    Active(&'a ClusterKey),
}

impl<'a> JobSlot<'a> {
    fn from_record(job: &'a JobRecord) -> Option<Self> {
        match job.state() {
            JobState::Queued if !job.unmet_dependencies().is_empty() => Some(Self::Dependent(&job.cluster)),
            JobState::Queued => {
                let queue_key = QueueKey { priority: Reverse(job.spec.scheduling_priority), sequence: job.sequence };
                Some(Self::Queued(&job.cluster, queue_key))
            }
            state if state.is_terminal() => None,
            _ => Some(Self::Active(&job.cluster)),
        }
    }
}

#[cfg(test)]
mod tests;
