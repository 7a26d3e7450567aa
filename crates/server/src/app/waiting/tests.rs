//! What queued jobs say, in a state made by hand.

use std::sync::Arc;

use corro_model::batchai::{AllocationState, Provisioning, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent};
use corro_model::{GroupKey, NodeId};
use corro_store::{ExperimentRecord, NewJob, NodeRecord, Txn};
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_542_000_000_000);

fn at(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn key(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("cifar").job(name)
}

fn cluster_key() -> ClusterKey {
    GroupKey::new("g").workspace("w").cluster("nc6")
}

/// A cluster of idle nodes and an experiment.
fn state(scale: serde_json::Value, nodes: u32) -> State {
    let mut state = State::default();
    let provisioning = Provisioning::new(ProvisioningState::Succeeded, NOW);
    let experiment = ExperimentRecord { name: "Cifar".to_owned(), provisioning: provisioning.clone() };
    state.put(key("x").experiment(), Arc::new(experiment));
    let spec = json!({"vmSize": "D1", "userAccountSettings": {"adminUserName": "a"}, "scaleSettings": scale});
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
            let id = NodeId::new(1, index, NOW);
            txn.put(id.clone(), NodeRecord::allocating(cluster_key(), index, String::new(), NOW));
            txn.node_event(&id, NodeEvent::Joined, NOW).expect("it was allocating");
            txn.node_event(&id, NodeEvent::Ready, NOW).expect("it was preparing");
        }
    });
    state
}

fn manual(count: u32) -> serde_json::Value {
    json!({"manual": {"targetNodeCount": count}})
}

fn change(state: &mut State, change: impl FnOnce(&mut Txn)) {
    *state = state.after(change).0;
}

fn submit(state: &mut State, name: &str, nodes: i32, limit: &str) {
    let spec = json!({"nodeCount": nodes, "stdOutErrPathPrefix": "x", "constraints": {"maxWallClockTime": limit}});
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
        txn.put(key(name), JobRecord::queued(job, NOW));
    });
}

fn start(state: &mut State, name: &str, nodes: &[u32]) {
    let nodes = nodes.iter().map(|index| NodeId::new(1, *index, NOW)).collect();
    change(state, |txn| txn.place(&key(name), nodes, NOW).expect("the nodes are idle"));
}

fn standing(state: &State, name: &str) -> Standing {
    let job = state.jobs[&key(name)].clone();
    let mut waits = Waits::of(state, NOW, [(&key(name), &*job)]);
    waits.0.remove(&key(name)).expect("the job waits")
}

#[test]
fn a_job_that_can_never_run_says_what_to_do() {
    let mut state = state(manual(4), 4);
    submit(&mut state, "big", 8, "PT1H");
    let big = standing(&state, "big");
    assert_eq!(
        big.why.as_deref(),
        Some(
            "the job needs 8 nodes and cluster NC6 has at most 4: resize it with 'cluster resize --target 8', or delete the job"
        )
    );
    assert_eq!((big.standing.estimated_start, big.standing.resize_to), (None, Some(8)));
    let mut state = self::state(json!({"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4}}), 0);
    submit(&mut state, "big", 8, "PT1H");
    let why = standing(&state, "big").why.unwrap_or_default();
    assert!(why.contains("raise its maximum with 'cluster auto-scale --min 1 --max 8'"), "{why}");
}

#[test]
fn the_first_in_line_and_those_behind_it_say_what_they_wait_for() {
    let mut state = state(manual(3), 3);
    submit(&mut state, "r", 2, "PT1H");
    start(&mut state, "r", &[1, 2]);
    submit(&mut state, "a", 3, "PT1H");
    submit(&mut state, "b", 1, "PT2H");
    submit(&mut state, "c", 2, "PT2H");
    let a = standing(&state, "a");
    assert_eq!(a.why.as_deref(), Some("the job is next and needs 3 nodes: 1 of cluster NC6 are idle now"));
    assert_eq!(a.standing.reason, WaitReason::NodesBusy);
    assert_eq!((a.standing.position, a.standing.nodes_needed, a.standing.resize_to), (1, 3, Some(5)));
    assert_eq!(a.standing.estimated_start, Some(at(3600)));
    assert_eq!(a.standing.estimate_basis, Some(EstimateBasis::Limits));
    let by = when(at(3600));
    assert_eq!(
        a.standing.unblocked_by,
        [
            format!("2 more idle nodes: R ends by {by}"),
            "5 nodes for cluster NC6: resize it with 'cluster resize --target 5'".to_owned()
        ]
    );
    let b = standing(&state, "b");
    assert_eq!(b.standing.reason, WaitReason::WouldDelay);
    assert_eq!(
        b.why.as_deref(),
        Some("cluster NC6 has idle nodes, but the job could run until its limit and delay A, which comes first")
    );
    assert_eq!(b.standing.unblocked_by[0], format!("A having started, by {by} at the latest"));
    assert_eq!(
        b.standing.unblocked_by[1],
        "a constraints.maxWallClockTime of PT1H or less: submit the job again with that"
    );
    let c = standing(&state, "c");
    assert_eq!(c.why.as_deref(), Some("2 jobs of cluster NC6 come first, and the first that waits is A"));
    assert_eq!((c.standing.reason, c.standing.position), (WaitReason::Behind, 3));
}

#[test]
fn a_job_about_to_start_waits_for_nothing() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let a = standing(&state, "a");
    assert_eq!((a.why, a.standing.reason), (None, WaitReason::Starting));
    assert_eq!((a.standing.estimated_start, a.standing.estimate_basis), (Some(NOW), Some(EstimateBasis::Nodes)));
}

#[test]
fn what_jobs_of_the_experiment_took_makes_the_estimate() {
    let mut state = state(manual(1), 1);
    for (name, took) in [("x", 10), ("y", 300), ("z", 40)] {
        submit(&mut state, name, 1, "PT1H");
        start(&mut state, name, &[1]);
        let ended = JobEvent::Succeeded { at: at(took) };
        change(&mut state, |txn| txn.end_attempt(&key(name), ended, at(took)).expect("it ran"));
    }
    submit(&mut state, "r", 1, "P7D");
    start(&mut state, "r", &[1]);
    submit(&mut state, "a", 1, "P7D");
    let a = standing(&state, "a").standing;
    assert_eq!((a.estimated_start, a.estimate_basis), (Some(at(40)), Some(EstimateBasis::History)));
}

#[test]
fn a_list_knows_of_all_and_of_those_that_wait_only() {
    let mut state = state(manual(1), 1);
    for name in ["r", "a", "b"] {
        submit(&mut state, name, 1, "PT1H");
    }
    start(&mut state, "r", &[1]);
    let jobs = state.jobs.iter().map(|(key, job)| (key, &**job));
    let waits = Waits::of(&state, NOW, jobs);
    let positions = ["r", "a", "b"].map(|name| waits.wait(&key(name)).map(|wait| wait.standing.position));
    assert_eq!(positions, [None, Some(1), Some(2)]);
}
