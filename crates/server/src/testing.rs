//! Hand-made state for tests of decisions: one cluster, its nodes, an experiment and jobs. No store, no clock.

use std::sync::Arc;
use std::time::Duration;

use corro_model::batchai::{AllocationState, Provisioning, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent};
use corro_model::{ClusterKey, GroupKey, JobKey, NodeId, Timestamp};
use corro_store::{ClusterRecord, ExperimentRecord, JobRecord, NewJob, NodeRecord, State, Txn};
use serde_json::{Value, json};

pub const NOW: Timestamp = Timestamp::from_millis(1_542_000_000_000);

pub fn at(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

pub fn key(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("cifar").job(name)
}

pub fn cluster_key() -> ClusterKey {
    GroupKey::new("g").workspace("w").cluster("nc6")
}

pub fn manual(count: u32) -> Value {
    json!({"manual": {"targetNodeCount": count}})
}

/// State with a cluster, idle nodes and an experiment.
pub fn state(scale: Value, nodes: u32) -> State {
    let mut state = State::default();
    let provisioning = Provisioning::new(ProvisioningState::Succeeded, NOW);
    let experiment = ExperimentRecord {
        name: "Cifar".to_owned(),
        provisioning: provisioning.clone(),
        notifications: None,
        webhook: None,
    };
    state.put(key("x").experiment(), Arc::new(experiment));
    let spec = json!({"vmSize": "STANDARD_D1", "userAccountSettings": {"adminUserName": "a"}, "scaleSettings": scale});
    let cluster = ClusterRecord {
        name: "NC6".to_owned(),
        guid: String::new(),
        pool: 1,
        next_index: 1,
        spec: serde_json::from_value(spec).expect("a literal"),
        secrets: None,
        fingerprint: String::new(),
        provisioning,
        allocation: AllocationState::Steady,
        allocation_since: NOW,
    };
    state.put(cluster_key(), Arc::new(cluster));
    change(&mut state, |txn| {
        for index in 1..=nodes {
            let id = node_id(index);
            txn.put(id.clone(), NodeRecord::allocating(cluster_key(), index, String::new(), NOW));
            txn.node_event(&id, NodeEvent::Joined, NOW).expect("it was allocating");
            txn.node_event(&id, NodeEvent::Ready, NOW).expect("it was preparing");
        }
    });
    state
}

pub fn node_id(index: u32) -> NodeId {
    NodeId::new(1, index, NOW)
}

pub fn change(state: &mut State, change: impl FnOnce(&mut Txn)) {
    *state = state.simulate(change).0;
}

/// Adds a queued job. Its name is in upper case, to distinguish names from keys.
pub fn submit(state: &mut State, name: &str, nodes: i32, limit: &str) {
    submit_spec(state, name, json!({"nodeCount": nodes, "constraints": {"maxWallClockTime": limit}}), &[]);
}

/// Adds a queued job of one node that waits for others.
pub fn submit_after(state: &mut State, name: &str, dependencies: &[&str]) {
    submit_spec(state, name, json!({"nodeCount": 1}), dependencies);
}

pub fn submit_spec(state: &mut State, name: &str, mut spec: Value, dependencies: &[&str]) {
    spec["stdOutErrPathPrefix"] = json!("x");
    let dependencies = dependencies.iter().map(|name| key(name)).collect();
    change(state, |txn| {
        let job = NewJob {
            name: name.to_uppercase(),
            guid: name.to_owned(),
            sequence: txn.next_sequence(),
            cluster: cluster_key(),
            spec: serde_json::from_value(spec).expect("a literal"),
            secrets: None,
            fingerprint: String::new(),
            segment: String::new(),
            provisioning: Provisioning::new(ProvisioningState::Succeeded, NOW),
        };
        txn.put(key(name), JobRecord::queued(job, NOW).depending_on(dependencies));
    });
}

pub fn start(state: &mut State, name: &str, nodes: &[u32]) {
    let nodes = nodes.iter().map(|index| node_id(*index)).collect();
    change(state, |txn| txn.place(&key(name), nodes, NOW).expect("the nodes are idle"));
}

pub fn end(state: &mut State, name: &str, when: Timestamp) {
    let event = JobEvent::Succeeded { at: when };
    change(state, |txn| txn.end_attempt(&key(name), event, when).expect("it ran"));
}
