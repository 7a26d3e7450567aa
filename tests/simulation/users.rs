//! Simulated users: they submit, resize, terminate and follow logs, through a server that may not answer.

use std::sync::Arc;

use corro_model::batchai::{AllocationState, Provisioning, ProvisioningState};
use corro_model::state::{JobEvent, Preemption, PreemptionCause, Termination};
use corro_model::{ClusterKey, ExperimentKey, GroupKey, JobKey};
use corro_store::{ClusterRecord, JobRecord, NewJob};
use serde_json::json;

use super::world::{Event, FAULT_PERIOD_MS, LogLine, World};

#[derive(Clone, Debug)]
pub enum UserAction {
    Submit(u64),
    Terminate,
    Resize,
    /// A low-priority node is preempted.
    Preempt,
}

pub struct Follower {
    pub job: JobKey,
    pub read: Vec<LogLine>,
    pub done: bool,
}

const MAX_NODES: u64 = 5;

impl World {
    /// Creates one cluster of a few nodes.
    pub fn create_cluster(&mut self) {
        let nodes = self.rng.between(1, MAX_NODES);
        let spec = json!({
            "vmSize": "STANDARD_NC6", "vmPriority": "lowpriority", "userAccountSettings": {"adminUserName": "me"},
            "scaleSettings": self.scale(nodes),
        });
        let time = self.time();
        let record = ClusterRecord {
            name: "c".to_owned(),
            guid: "c".to_owned(),
            pool: 1,
            next_index: 1,
            spec: serde_json::from_value(spec).expect("a literal"),
            secrets: None,
            fingerprint: String::new(),
            provisioning: Provisioning::new(ProvisioningState::Creating, time),
            allocation: AllocationState::Steady,
            allocation_since: time,
        };
        self.disk = Arc::new(self.disk.simulate(|txn| txn.put(cluster(), record)).0);
    }

    pub fn schedule_user_actions(&mut self) {
        for i in 0..self.rng.between(2, 9) {
            let at = self.rng.between(0, FAULT_PERIOD_MS * 3 / 4);
            self.schedule(at, Event::User(UserAction::Submit(i)));
        }
        for _ in 0..self.rng.between(0, 4) {
            let at = self.rng.between(0, FAULT_PERIOD_MS);
            let action = if self.rng.one_in(2) { UserAction::Terminate } else { UserAction::Resize };
            self.schedule(at, Event::User(action));
        }
        for _ in 0..self.rng.between(0, 4) {
            let at = self.rng.between(0, FAULT_PERIOD_MS);
            self.schedule(at, Event::User(UserAction::Preempt));
        }
        // At the end there is capacity for every job.
        self.schedule(FAULT_PERIOD_MS + 1_000, Event::User(UserAction::Resize));
    }

    pub fn on_user_action(&mut self, action: UserAction) {
        if self.server.is_none() {
            // The server is down, "connection refused"; users retry.
            let later = self.rng.between(100, 1_000);
            return self.schedule(later, Event::User(action));
        }
        self.log(|| format!("a user asks for {action:?}"));
        match action {
            UserAction::Submit(i) => self.submit(i),
            UserAction::Terminate => {
                let unfinished: Vec<JobKey> = self.unfinished().into_iter().cloned().collect();
                let Some(key) = self.rng.pick(unfinished) else { return };
                let time = self.time();
                let (after, _) = self.disk.simulate(|txn| {
                    txn.job_event(&key, JobEvent::TerminateRequested { cause: Termination::User, at: time }, time)
                });
                self.commit(after);
            }
            UserAction::Preempt => {
                let nodes: Vec<_> = self.disk.nodes.keys().cloned().collect();
                let (Some(node), grace_ms) = (self.rng.pick(nodes), self.rng.between(0, 4_000)) else { return };
                let preemption = Preemption { at: self.time(), cause: PreemptionCause::Asked, grace_ms };
                let (after, _) = self.disk.simulate(|txn| txn.preempt(&node, preemption));
                self.commit(after);
            }
            UserAction::Resize => {
                let nodes = if self.now > FAULT_PERIOD_MS { MAX_NODES } else { self.rng.between(0, MAX_NODES + 1) };
                let scale = self.scale(nodes);
                let (after, _) = self.disk.simulate(|txn| {
                    txn.update::<ClusterRecord>(&cluster(), |cluster| {
                        cluster.spec.scale_settings = serde_json::from_value(scale).expect("a literal");
                    })
                });
                self.commit(after);
            }
        }
        self.schedule_pass(5);
    }

    fn scale(&mut self, nodes: u64) -> serde_json::Value {
        if self.rng.one_in(4) {
            return json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": nodes.max(1)}});
        }
        let option = self.rng.pick(["requeue", "terminate", "waitforjobcompletion"]).expect("there are three");
        json!({"manual": {"targetNodeCount": nodes, "nodeDeallocationOption": option}})
    }

    fn submit(&mut self, i: u64) {
        let (key, time) = (experiment().job(&format!("j{i}")), self.time());
        let priority = self.rng.pick(["low", "normal", "high"]).expect("there are three");
        let limit = if self.rng.one_in(8) { "PT2S" } else { "PT30S" };
        let retries = if self.rng.one_in(2) { self.rng.between(1, 3) } else { 0 };
        let spec = json!({
            "nodeCount": self.rng.between(1, MAX_NODES), "schedulingPriority": priority,
            "stdOutErrPathPrefix": "x", "customMpiSettings": {"commandLine": "x"},
            "constraints": {"maxWallClockTime": limit, "maxRetryCount": retries},
        });
        // Jobs that exist, whatever has become of them.
        let mut dependencies = Vec::new();
        while self.rng.one_in(3) && dependencies.len() < self.disk.jobs.len() {
            let others: Vec<JobKey> =
                self.disk.jobs.keys().filter(|other| !dependencies.contains(*other)).cloned().collect();
            dependencies.extend(self.rng.pick(others));
        }
        self.invariants.submitted_after(&key, &dependencies);
        let (after, ()) = self.disk.simulate(|txn| {
            let job = NewJob {
                name: format!("j{i}"),
                guid: format!("guid{i}"),
                sequence: txn.next_sequence(),
                cluster: cluster(),
                spec: serde_json::from_value(spec).expect("a literal"),
                secrets: None,
                fingerprint: String::new(),
                segment: String::new(),
                provisioning: Provisioning::new(ProvisioningState::Succeeded, time),
            };
            txn.put(key.clone(), JobRecord::queued(job, time).depending_on(dependencies));
        });
        self.commit(after);
        // Without a response nothing was acknowledged, though the job may exist.
        if !self.rng.one_in(10) {
            self.invariants.acknowledged.insert(key.clone());
            self.followers.push(Follower { job: key, read: Vec::new(), done: false });
            let i = self.followers.len() - 1;
            self.schedule(1, Event::Follow(i));
        }
    }

    /// Reads a log by byte offset: no byte is requested twice, and none is skipped. Ends after a last read that began when the
    /// job was seen to have ended.
    pub fn follow(&mut self, i: usize) {
        let later = self.rng.between(50, 900);
        let answered = self.server.is_some() && !self.rng.one_in(10);
        if answered {
            let follower = &self.followers[i];
            let job = self.disk.jobs[&follower.job].clone();
            let log = self.logs.get(&job.guid).map(Vec::as_slice).unwrap_or_default();
            let ended = job.state().is_terminal();
            let new = log[follower.read.len()..].to_vec();
            let size = if ended { new.len() } else { self.rng.between(0, new.len() as u64 + 1) as usize };
            let follower = &mut self.followers[i];
            follower.read.extend_from_slice(&new[..size]);
            follower.done = ended;
        }
        if !self.followers[i].done {
            self.schedule(later, Event::Follow(i));
        }
    }
}

fn experiment() -> ExperimentKey {
    GroupKey::new("g").workspace("w").experiment("e")
}

fn cluster() -> ClusterKey {
    GroupKey::new("g").workspace("w").cluster("c")
}
