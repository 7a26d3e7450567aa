//! One change in the making: a private copy of the state and the list of rows it touched. Made and committed by the
//! writer; a change that fails is dropped whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use corro_model::batchai::BatchAiError;
use corro_model::state::{JobEvent, NodeEvent, NodeState, Refused, job, node};
use corro_model::{JobKey, NodeId, Timestamp};

use crate::records::{JobRecord, LostAttempt, NodeRecord, Record};
use crate::state::State;

/// Rows to write (`Some`) or delete (`None`), by kind and key.
pub(crate) type Dirty = BTreeMap<(&'static str, String), Option<String>>;

pub struct Txn {
    state: State,
    dirty: Dirty,
}

impl Txn {
    pub(crate) fn on(state: &State) -> Self {
        Self { state: state.clone(), dirty: Dirty::new() }
    }

    /// The state as changed so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn get<R: Record>(&self, key: &R::Key) -> Option<Arc<R>> {
        R::table(&self.state).get(key).cloned()
    }

    pub fn put<R: Record>(&mut self, key: R::Key, record: R) {
        let body = serde_json::to_string(&record).expect("records are plain data");
        self.dirty.insert((R::KIND, row_key(&key)), Some(body));
        self.state.put(key, Arc::new(record));
    }

    pub fn remove<R: Record>(&mut self, key: &R::Key) {
        if self.state.remove::<R>(key) {
            self.dirty.insert((R::KIND, row_key(key)), None);
        }
    }

    /// Changes a record in place; `false` when there is none.
    pub fn update<R: Record>(&mut self, key: &R::Key, change: impl FnOnce(&mut R)) -> bool {
        let Some(record) = self.get::<R>(key) else { return false };
        let mut record = (*record).clone();
        change(&mut record);
        self.put(key.clone(), record);
        true
    }

    /// Where a new job stands in the order of submission.
    pub fn next_sequence(&mut self) -> u64 {
        self.state.last_sequence += 1;
        self.state.last_sequence
    }

    /// Moves a job through its state machine.
    pub fn job_event(&mut self, key: &JobKey, event: JobEvent, now: Timestamp) -> Result<(), Refused> {
        let missing = Refused { thing: "job", state: "gone", event: event.name() };
        let mut record = (*self.get::<JobRecord>(key).ok_or(missing)?).clone();
        let next = job::next(record.state.clone(), event)?;
        if next != record.state {
            record.state = next;
            record.since = now;
            self.put(key.clone(), record);
        }
        Ok(())
    }

    /// Moves a node through its state machine.
    pub fn node_event(&mut self, id: &NodeId, event: NodeEvent, now: Timestamp) -> Result<(), Refused> {
        let missing = Refused { thing: "node", state: "gone", event: event.name() };
        let mut record = (*self.get::<NodeRecord>(id).ok_or(missing)?).clone();
        let lost = matches!(event, NodeEvent::Broken { lost: true, .. });
        let next = node::next(record.state.clone(), event)?;
        if next != record.state {
            record.state = next;
            record.since = now;
            // Whatever the lost node still does, it does on old orders.
            record.epoch += u64::from(lost);
            self.put(id.clone(), record);
        }
        Ok(())
    }

    /// Gives a queued job its nodes: the job runs, each node is busy with it, all or none.
    pub fn place(&mut self, key: &JobKey, nodes: Vec<NodeId>, now: Timestamp) -> Result<(), Refused> {
        self.job_event(key, JobEvent::Placed { nodes: nodes.clone(), at: now }, now)?;
        let mut attempt = None;
        self.update::<JobRecord>(key, |job| {
            job.attempts += 1;
            attempt = Some(job.attempt());
        });
        let attempt = attempt.expect("the job took an event just now");
        for id in nodes {
            let event = NodeEvent::Assigned { job: key.clone(), attempt: attempt.clone() };
            self.node_event(&id, event, now)?;
        }
        Ok(())
    }

    /// Ends an attempt with `event` and frees the nodes that were busy with it.
    pub fn end_attempt(&mut self, key: &JobKey, event: JobEvent, now: Timestamp) -> Result<(), Refused> {
        let nodes = self.get::<JobRecord>(key).map(|job| job.state().nodes().to_vec()).unwrap_or_default();
        self.job_event(key, event, now)?;
        for id in nodes {
            let busy = self
                .get::<NodeRecord>(&id)
                .is_some_and(|node| matches!(node.state(), NodeState::Running { job, .. } if job == key));
            if busy {
                self.node_event(&id, NodeEvent::Released, now)?;
            }
        }
        Ok(())
    }

    /// Sends a job back to the queue because of `reason`, and frees its nodes.
    pub fn requeue(&mut self, key: &JobKey, reason: BatchAiError, now: Timestamp) -> Result<(), Refused> {
        self.end_attempt(key, JobEvent::Requeued, now)?;
        self.update::<JobRecord>(key, |job| {
            job.lost_attempts.push(LostAttempt { number: job.attempts, ended: now, reason });
        });
        Ok(())
    }

    pub(crate) fn into_state(self) -> State {
        self.finish().0
    }

    pub(crate) fn finish(mut self) -> (State, Dirty) {
        if !self.dirty.is_empty() {
            self.state.revision += 1;
        }
        (self.state, self.dirty)
    }
}

fn row_key<K: serde::Serialize>(key: &K) -> String {
    match serde_json::to_value(key) {
        Ok(serde_json::Value::String(text)) => text,
        _ => unreachable!("keys are plain text"),
    }
}
