//! Changes of the size of a running elastic job: nodes join it, are asked back, and leave it. Each change is in the
//! job's record and in the history, with its reason.

use corro_model::batchai::{BatchAiError, SizeChange};
use corro_model::state::{JobEvent, JobState, NodeEvent, NodeState, TransitionError, job};
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use serde_json::json;

use super::Txn;
use crate::records::{ElasticRecord, JobRecord, NodeRecord, Release};

impl Txn {
    /// Notes the size with which an attempt of an elastic job starts.
    pub(super) fn record_start_size(&mut self, key: &JobKey, nodes: usize, now: Timestamp) {
        let Some(record) = self.get::<JobRecord>(key).filter(|job| job.spec.elastic.is_some()) else { return };
        let message = match record.attempts {
            1 => "The job started",
            _ => "The job started again",
        };
        let mut elastic = ElasticRecord { changes: Vec::new(), ..ElasticRecord::default() };
        elastic.changes = record.elastic().map(|earlier| earlier.changes.clone()).unwrap_or_default();
        elastic.add_change(SizeChange {
            time: now,
            attempt: record.attempts,
            node_count: nodes as i32,
            reason: BatchAiError::new("Started", message),
        });
        self.update::<JobRecord>(key, |job| job.elastic = Some(Box::new(elastic)));
    }

    /// Gives further idle nodes to a running elastic job, all or none.
    pub fn grow(
        &mut self,
        key: &JobKey,
        added: Vec<NodeId>,
        reason: BatchAiError,
        now: Timestamp,
    ) -> Result<(), TransitionError> {
        let (attempt, mut nodes) = self.elastic_attempt(key, "grown")?;
        for id in &added {
            let state = self.get::<NodeRecord>(id).map_or("gone", |node| node.state().name());
            if state != NodeState::Idle.name() {
                return Err(TransitionError { thing: "node", state, event: "assigned" });
            }
        }
        nodes.extend(added.iter().cloned());
        self.resize(key, nodes, (&added, &[]), reason, now)?;
        self.assign_nodes(key, &attempt, added, now)
    }

    /// Asks a running elastic job to give nodes back by a time. They stay its nodes until [`Txn::remove_node`].
    pub fn release(
        &mut self,
        key: &JobKey,
        nodes: &[NodeId],
        by: Timestamp,
        reason: &BatchAiError,
    ) -> Result<(), TransitionError> {
        let (attempt, held) = self.elastic_attempt(key, "released")?;
        let own: Vec<&NodeId> = nodes.iter().filter(|node| held.contains(node)).collect();
        let detail = json!({
            "attempt": attempt.number, "nodes": own, "code": reason.code, "message": reason.message,
        });
        self.update::<JobRecord>(key, |job| {
            let elastic = job.elastic.get_or_insert_default();
            for node in own {
                elastic.releasing.retain(|release| release.node != *node);
                elastic.releasing.push(Release { node: node.clone(), by, reason: reason.clone() });
            }
        });
        self.add_history("job.shrinking", key.as_str(), detail);
        Ok(())
    }

    /// Takes a node from a running elastic job, which goes on with the others. A node that is not lost becomes idle.
    /// `refused`: the attempt does not get it again.
    pub fn remove_node(
        &mut self,
        key: &JobKey,
        node: &NodeId,
        reason: BatchAiError,
        refused: bool,
        now: Timestamp,
    ) -> Result<(), TransitionError> {
        let (attempt, mut nodes) = self.elastic_attempt(key, "removed")?;
        nodes.retain(|held| held != node);
        self.resize(key, nodes, (&[], std::slice::from_ref(node)), reason, now)?;
        self.update::<JobRecord>(key, |job| {
            let elastic = job.elastic.get_or_insert_default();
            elastic.releasing.retain(|release| release.node != *node);
            if refused {
                elastic.refused.push(node.clone());
            }
        });
        let is_busy = |record: &NodeRecord| matches!(record.state(), NodeState::Running { attempt: with, .. } if *with == attempt);
        if self.get::<NodeRecord>(node).is_some_and(|record| is_busy(&record)) {
            self.node_event(node, NodeEvent::Released, now)?;
        }
        Ok(())
    }

    /// Attempt and nodes of an elastic job that runs.
    fn elastic_attempt(&self, key: &JobKey, event: &'static str) -> Result<(AttemptId, Vec<NodeId>), TransitionError> {
        let record = self.get::<JobRecord>(key);
        let state = record.as_ref().map_or("gone", |job| job.state.name());
        match record.as_deref() {
            Some(job) if job.spec.elastic.is_some() && matches!(job.state, JobState::Running { .. }) => {
                Ok((job.attempt(), job.state.nodes().to_vec()))
            }
            _ => Err(TransitionError { thing: "elastic job", state, event }),
        }
    }

    fn resize(
        &mut self,
        key: &JobKey,
        nodes: Vec<NodeId>,
        (added, removed): (&[NodeId], &[NodeId]),
        reason: BatchAiError,
        now: Timestamp,
    ) -> Result<(), TransitionError> {
        let missing = TransitionError { thing: "job", state: "gone", event: "resized" };
        let mut record = (*self.get::<JobRecord>(key).ok_or(missing)?).clone();
        let (attempt, node_count) = (record.attempts, nodes.len());
        record.state = job::next(record.state.clone(), JobEvent::Resized { nodes })?;
        let detail = json!({
            "attempt": attempt, "nodeCount": node_count, "added": added, "removed": removed,
            "code": reason.code, "message": reason.message,
        });
        let change = SizeChange { time: now, attempt, node_count: node_count as i32, reason };
        record.elastic.get_or_insert_default().add_change(change);
        self.put(key.clone(), record);
        self.add_history("job.resized", key.as_str(), detail);
        Ok(())
    }
}
