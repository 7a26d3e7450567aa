//! Transaction: a private copy of the state and the rows that it changes. Created and committed by the writer; dropped
//! as a whole if the change fails.

mod deliveries;
mod sizes;

use std::collections::BTreeMap;
use std::sync::Arc;

use corro_model::batchai::BatchAiError;
use corro_model::state::{JobEvent, JobState, NodeEvent, NodeState, Preemption, TransitionError, job, node};
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use serde_json::{Value, json};

use crate::history::{self, Actor, Event, SERVER};
use crate::records::{JobRecord, Loss, LostAttempt, NodeRecord};
use crate::space::Space;
use crate::state::{Record, State};

/// Rows to write (`Some`) or delete (`None`), by kind and key.
pub(crate) type Rows = BTreeMap<(&'static str, String), Option<Arc<dyn Body>>>;

/// Rows and history events of a transaction.
#[derive(Default)]
pub(crate) struct Changes {
    pub rows: Rows,
    pub events: Vec<Event>,
}

/// Record that can be serialized. The writer serializes once, however often the record was changed.
pub(crate) trait Body: Send + Sync {
    fn text(&self) -> String;
}

impl<R: Record> Body for R {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("records are plain data")
    }
}

pub struct Txn {
    state: State,
    changes: Changes,
    actor: Actor,
    space: Space,
}

impl Txn {
    pub(crate) fn new(state: &State, actor: Actor) -> Self {
        Self::with_space(Space::Ample, state, actor)
    }

    pub(crate) fn with_space(space: Space, state: &State, actor: Actor) -> Self {
        Self { state: state.clone(), changes: Changes::default(), actor, space }
    }

    /// Whether this transaction may add records.
    pub fn space(&self) -> Space {
        self.space
    }

    /// State including the changes so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Principal on whose behalf the transaction runs.
    pub fn actor(&self) -> &str {
        &self.actor.name
    }

    pub fn get<R: Record>(&self, key: &R::Key) -> Option<Arc<R>> {
        R::table(&self.state).get(key).cloned()
    }

    /// Inserts or replaces a record, and writes the history event.
    pub fn put<R: Record>(&mut self, key: R::Key, record: R) {
        let (record, row) = (Arc::new(record), row_key(&key));
        let old = R::table(&self.state).get(&key);
        // An identical record is no change and has no history event.
        if !R::HAS_STATE_MACHINE && old.is_some_and(|old| old.text() == record.text()) {
            return;
        }
        let event = match old {
            None => Some(R::CREATED_EVENT),
            Some(old) if record.is_deleting() && !old.is_deleting() => Some("deleting"),
            // State machines write their own events; the server's own maintenance of other records has none.
            Some(_) if R::HAS_STATE_MACHINE || &*self.actor.name == SERVER => None,
            Some(_) => Some("changed"),
        };
        if let Some(event) = event {
            self.record_event::<R>(event, &*record, &row, record.history_detail());
        }
        self.changes.rows.insert((R::KIND, row), Some(record.clone()));
        self.state.put(key, record);
    }

    pub fn remove<R: Record>(&mut self, key: &R::Key) {
        let Some(old) = self.get::<R>(key) else { return };
        let row = row_key(key);
        self.record_event::<R>("deleted", &*old, &row, Value::Null);
        self.state.remove::<R>(key);
        self.changes.rows.insert((R::KIND, row), None);
    }

    /// Adds a history row in this transaction, for events that are not visible in the records. `what` is `KIND.EVENT`;
    /// `detail` is small and holds no secret.
    pub fn add_history(&mut self, what: &str, resource: &str, detail: Value) {
        let (actor, what, resource) = (self.actor.name.clone(), what.to_owned(), resource.to_owned());
        let detail = self.actor.located(detail);
        self.changes.events.push(Event { actor, what, resource, detail });
    }

    fn record_event<R: Record>(&mut self, event: &str, record: &R, row: &str, detail: Value) {
        if let Some(resource) = record.resource(row) {
            self.add_history(&format!("{}.{event}", R::KIND), &resource, detail);
        }
    }

    /// Changes a record in place; `false` if there is none.
    pub fn update<R: Record>(&mut self, key: &R::Key, change: impl FnOnce(&mut R)) -> bool {
        let Some(record) = self.get::<R>(key) else { return false };
        let mut record = (*record).clone();
        change(&mut record);
        self.put(key.clone(), record);
        true
    }

    /// Submission number for a new job.
    pub fn next_sequence(&mut self) -> u64 {
        self.state.last_sequence += 1;
        self.state.last_sequence
    }

    /// Applies an event to a job's state machine.
    pub fn job_event(&mut self, key: &JobKey, event: JobEvent, now: Timestamp) -> Result<(), TransitionError> {
        self.move_job(key, event, now, None)
    }

    fn move_job(
        &mut self,
        key: &JobKey,
        event: JobEvent,
        now: Timestamp,
        why: Option<&BatchAiError>,
    ) -> Result<(), TransitionError> {
        let missing = TransitionError { thing: "job", state: "gone", event: event.name() };
        let mut record = (*self.get::<JobRecord>(key).ok_or(missing)?).clone();
        let next = job::next(record.state.clone(), event)?;
        if next != record.state {
            if next.nodes().is_empty() {
                record.former_nodes = record.last_nodes().to_vec();
            }
            record.state = next;
            record.since = now;
            let (event, detail) = job_history_event(&record, why);
            self.record_event::<JobRecord>(event, &record, key.as_str(), detail);
            // `place` increments the attempt right after.
            let attempt = record.attempts + u32::from(matches!(record.state, JobState::Running { .. }));
            self.add_delivery(key, &record, attempt, now);
            self.put(key.clone(), record);
        }
        Ok(())
    }

    /// Applies an event to a node's state machine.
    pub fn node_event(&mut self, id: &NodeId, event: NodeEvent, now: Timestamp) -> Result<(), TransitionError> {
        let missing = TransitionError { thing: "node", state: "gone", event: event.name() };
        let mut record = (*self.get::<NodeRecord>(id).ok_or(missing)?).clone();
        let lost = matches!(event, NodeEvent::Broken { lost: true, .. });
        let loss = match (&event, &record.state) {
            (NodeEvent::Broken { error, lost: true }, NodeState::Running { job, attempt }) => {
                let loss = Loss { attempt: attempt.number, node: id.clone(), cause: error.message.clone() };
                Some((job.clone(), loss))
            }
            _ => None,
        };
        let next = node::next(record.state.clone(), event)?;
        if next != record.state {
            record.state = next;
            record.since = now;
            // Fencing: orders of the old epoch no longer count.
            record.epoch += u64::from(lost);
            if let Some((event, detail)) = node_history_event(&record) {
                self.record_event::<NodeRecord>(event, &record, id.as_str(), detail);
            }
            self.put(id.clone(), record);
            if let Some((job, loss)) = loss {
                self.update::<JobRecord>(&job, |job| {
                    if job.loss.as_ref().is_none_or(|first| first.attempt != loss.attempt) {
                        job.loss = Some(loss);
                    }
                });
            }
        }
        Ok(())
    }

    /// Marks a node as preempted; the reaction of its job is decided elsewhere. `false` if it is already leaving.
    pub fn preempt(&mut self, id: &NodeId, preemption: Preemption) -> bool {
        let goes = |node: &NodeRecord| node.preempted.is_some() || node.state == NodeState::Leaving;
        let Some(record) = self.get::<NodeRecord>(id).filter(|node| !goes(node)) else { return false };
        let record = NodeRecord { preempted: Some(preemption), ..(*record).clone() };
        let detail = json!({"cause": preemption.cause, "graceSeconds": preemption.grace_ms as f64 / 1_000.0});
        self.record_event::<NodeRecord>("preempted", &record, id.as_str(), detail);
        self.put(id.clone(), record);
        true
    }

    /// Assigns nodes to a queued job: the job runs and all nodes are busy with it, or nothing changes.
    pub fn place(&mut self, key: &JobKey, nodes: Vec<NodeId>, now: Timestamp) -> Result<(), TransitionError> {
        self.job_event(key, JobEvent::Placed { nodes: nodes.clone(), at: now }, now)?;
        let mut attempt = None;
        self.update::<JobRecord>(key, |job| {
            job.attempts += 1;
            attempt = Some(job.attempt());
        });
        let attempt = attempt.expect("the job took an event just now");
        self.record_start_size(key, nodes.len(), now);
        self.assign_nodes(key, &attempt, nodes, now)
    }

    fn assign_nodes(
        &mut self,
        key: &JobKey,
        attempt: &AttemptId,
        nodes: Vec<NodeId>,
        now: Timestamp,
    ) -> Result<(), TransitionError> {
        for id in nodes {
            let event = NodeEvent::Assigned { job: key.clone(), attempt: attempt.clone() };
            self.node_event(&id, event, now)?;
        }
        Ok(())
    }

    /// Ends an attempt with `event` and releases its nodes.
    pub fn end_attempt(&mut self, key: &JobKey, event: JobEvent, now: Timestamp) -> Result<(), TransitionError> {
        self.release_nodes(key, event, now, None)
    }

    fn release_nodes(
        &mut self,
        key: &JobKey,
        event: JobEvent,
        now: Timestamp,
        why: Option<&BatchAiError>,
    ) -> Result<(), TransitionError> {
        let nodes = self.get::<JobRecord>(key).map(|job| job.state().nodes().to_vec()).unwrap_or_default();
        self.move_job(key, event, now, why)?;
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

    /// Requeues a job because of `reason` and releases its nodes.
    pub fn requeue(&mut self, key: &JobKey, reason: BatchAiError, now: Timestamp) -> Result<(), TransitionError> {
        self.release_nodes(key, JobEvent::Requeued, now, Some(&reason))?;
        self.update::<JobRecord>(key, |job| {
            job.lost_attempts.push(LostAttempt { number: job.attempts, ended: now, exit_code: None, reason });
        });
        Ok(())
    }

    /// Requeues a job whose attempt failed with `reason`, counts the attempt and releases its nodes.
    pub fn retry(
        &mut self,
        key: &JobKey,
        exit_code: i32,
        reason: BatchAiError,
        now: Timestamp,
    ) -> Result<(), TransitionError> {
        self.release_nodes(key, JobEvent::Requeued, now, Some(&reason))?;
        self.update::<JobRecord>(key, |job| {
            job.lost_attempts.push(LostAttempt {
                number: job.attempts,
                ended: now,
                exit_code: Some(exit_code),
                reason,
            });
            job.failed_attempts += 1;
        });
        Ok(())
    }

    /// Crosses off a dependency of a queued job. Refused unless the dependency has succeeded: it may have been terminated
    /// since that was decided.
    pub fn meet_dependency(&mut self, key: &JobKey, dependency: &JobKey) -> Result<(), TransitionError> {
        let succeeded =
            self.get::<JobRecord>(dependency).is_some_and(|job| matches!(job.state, JobState::Succeeded { .. }));
        let state = self.get::<JobRecord>(key).map_or("gone", |job| job.state.name());
        if !succeeded || state != JobState::Queued.name() {
            return Err(TransitionError { thing: "job", state, event: "dependencyMet" });
        }
        self.update::<JobRecord>(key, |job| job.unmet_dependencies.retain(|unmet| unmet != dependency));
        Ok(())
    }

    pub(crate) fn into_state(self) -> State {
        self.finish().0
    }

    pub(crate) fn finish(mut self) -> (State, Changes) {
        if !self.changes.is_empty() {
            self.state.revision += 1;
        }
        (self.state, self.changes)
    }
}

impl State {
    /// State after `change`, not stored. Used for dry runs.
    pub fn simulate<T>(&self, change: impl FnOnce(&mut Txn) -> T) -> (State, T) {
        let mut txn = Txn::new(self, SERVER.into());
        let result = change(&mut txn);
        (txn.into_state(), result)
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.events.is_empty()
    }

    /// Appends later changes.
    pub fn extend(&mut self, later: Self) {
        self.rows.extend(later.rows);
        self.events.extend(later.events);
    }
}

/// History event of a job's new state. Failure messages may quote the user's program, so only the code is recorded.
fn job_history_event(job: &JobRecord, why: Option<&BatchAiError>) -> (&'static str, Value) {
    match &job.state {
        JobState::Queued => match why {
            Some(why) => ("requeued", json!({"attempt": job.attempts, "code": why.code, "message": why.message})),
            None => ("requeued", json!({"attempt": job.attempts})),
        },
        JobState::Running { nodes, .. } => {
            // `place` increments the attempt right after.
            let attempt = corro_model::AttemptId { number: job.attempts + 1, ..job.attempt() };
            ("placed", history::placement(&attempt, nodes))
        }
        JobState::Terminating { .. } => ("terminating", Value::Null),
        JobState::Succeeded { .. } => ("succeeded", json!({"attempt": job.attempts})),
        JobState::Failed { exit_code, errors, .. } => {
            let code = errors.first().map(|error| &error.code);
            ("failed", json!({"attempt": job.attempts, "exitCode": exit_code, "code": code}))
        }
    }
}

/// History event of a node's new state. Assignments are recorded for the job only.
fn node_history_event(node: &NodeRecord) -> Option<(&'static str, Value)> {
    match &node.state {
        NodeState::Allocating | NodeState::Idle | NodeState::Running { .. } => None,
        NodeState::Preparing => Some(("joined", Value::Null)),
        NodeState::Leaving => Some(("retired", Value::Null)),
        NodeState::Unusable { error, lost } => {
            Some((if *lost { "lost" } else { "unusable" }, json!({"code": error.code, "message": error.message})))
        }
    }
}

fn row_key<K: serde::Serialize>(key: &K) -> String {
    match serde_json::to_value(key) {
        Ok(Value::String(text)) => text,
        _ => unreachable!("keys are plain text"),
    }
}
