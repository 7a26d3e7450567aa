//! Steps that follow from hand-made states: allocation, retirement, placement, preemption.

use std::time::Duration;

use corro_model::NodeId;
use corro_model::batchai::VmPriority;
use corro_sched::{Policy, RegionCapacity, Target};
use corro_store::{ClusterRecord, State, Timeline};
use serde_json::{Value, json};

use super::*;
use crate::scheduler_view::view;
use crate::testing::*;

fn steps(state: &State, now: Timestamp) -> Vec<Step> {
    steps_by(state, &Timeline::starting(now))
}

fn steps_by(state: &State, clock: &Timeline) -> Vec<Step> {
    let snapshot = view(state, clock, RegionCapacity::UNLIMITED);
    decide(state, &corro_sched::plan(&snapshot, &Policy::STANDARD), &SchedulingConfig::DEFAULT, clock.now())
}

fn allocated(state: &State) -> usize {
    let counts = steps(state, NOW).into_iter().filter_map(|step| match step {
        Step::Allocate(_, count, _) => Some(count),
        _ => None,
    });
    counts.sum()
}

fn retired(state: &State, now: Timestamp) -> Vec<NodeId> {
    let nodes = steps(state, now).into_iter().filter_map(|step| match step {
        Step::Node(id, NodeEvent::Retired) => Some(id),
        _ => None,
    });
    nodes.collect()
}

fn auto(min: u32, max: u32, initial: u32) -> Value {
    json!({"autoScale": {"minimumNodeCount": min, "maximumNodeCount": max, "initialNodeCount": initial}})
}

#[test]
fn the_initial_node_count_is_for_the_creation_only() {
    let mut state = state(auto(0, 4, 3), 0);
    assert_eq!(allocated(&state), 0);
    change(&mut state, |txn| {
        txn.update::<ClusterRecord>(&cluster_key(), |c| c.provisioning.set_state(ProvisioningState::Creating, NOW));
    });
    assert_eq!(allocated(&state), 3);
}

#[test]
fn clock_jumps_do_not_change_idle_times() {
    let state = state(auto(0, 4, 0), 2);
    let gone = |clock: &Timeline| steps_by(&state, clock).iter().any(|step| matches!(step, Step::Node(..)));
    for jumped in [at(3 * 86_400), Timestamp::from_millis(NOW.millis() - 3 * 86_400_000)] {
        let mut clock = Timeline::starting(NOW);
        clock.observe(at(10), Duration::from_secs(10));
        clock.observe(jumped, Duration::from_secs(11)).expect("a jump");
        assert!(!gone(&clock), "they are idle for eleven seconds");
        clock.observe(jumped.plus(Duration::from_secs(60)), Duration::from_secs(71));
        assert!(gone(&clock), "they are idle for more than a minute");
    }
}

#[test]
fn a_node_leaves_an_auto_scaled_cluster_when_it_was_idle_for_a_minute() {
    let mut state = state(auto(0, 4, 0), 2);
    submit(&mut state, "a", 1, "PT1H");
    start(&mut state, "a", &[1]);
    assert_eq!(retired(&state, at(59)), []);
    assert_eq!(retired(&state, at(60)), [node_id(2)]);
    // A node is idle from the end of its job, not from its creation.
    end(&mut state, "a", at(50));
    assert_eq!(retired(&state, at(109)), [node_id(2)]);
    assert_eq!(retired(&state, at(110)), [node_id(2), node_id(1)]);
}

/// Nodes 1 and 2 run `a` and `b`; one of them must be deallocated.
#[test]
fn a_resize_ends_requeues_or_waits_for_jobs_as_asked() {
    let check = |option: &str, expected: &[Step]| {
        let mut state = state(json!({"manual": {"targetNodeCount": 1, "nodeDeallocationOption": option}}), 2);
        for (name, node) in [("a", 1), ("b", 2)] {
            submit(&mut state, name, 1, "PT1H");
            start(&mut state, name, &[node]);
        }
        let steps = steps(&state, NOW);
        let about_jobs = steps.iter().filter(|step| !matches!(step, Step::SetAllocationState(..))).cloned();
        assert_eq!(about_jobs.collect::<Vec<_>>(), expected, "{option}");
    };
    let message = "The job's cluster was made smaller with the option 'requeue': it waits again, and runs from its beginning with the same output directory";
    let reason = BatchAiError::new("ClusterResized", message);
    let evicted = EvictionRecord { attempt: 1, at: NOW, grace_ms: 5_000, reason };
    check("requeue", &[Step::Evict(key("b"), evicted)]);
    check("terminate", &[Step::Terminate(key("b"))]);
    check("waitforjobcompletion", &[]);
}

#[test]
fn jobs_are_stopped_once_and_their_nodes_count_as_soon_free() {
    let mut state = state(json!({"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}}), 1);
    submit(&mut state, "a", 1, "P7D");
    start(&mut state, "a", &[1]);
    let evictions = |state: &State| -> Vec<EvictionRecord> {
        let evicted = steps(state, NOW).into_iter().filter_map(|step| match step {
            Step::Evict(job, evicted) if job == key("a") => Some(evicted),
            _ => None,
        });
        evicted.collect()
    };
    let evicted = evictions(&state).pop();
    assert!(evicted.is_some());
    change(&mut state, |txn| {
        txn.update::<JobRecord>(&key("a"), |job| job.evicted = evicted);
    });
    assert_eq!(evictions(&state), []);
    let clock = Timeline::starting(at(5));
    let view = view(&state, &clock, RegionCapacity::UNLIMITED);
    let running = view.clusters[0].jobs.running().next();
    assert_eq!(running.map(|job| job.ends_by), Some(at(5)));
}

#[test]
fn a_gang_is_placed_on_the_nodes_it_needs() {
    let mut state = state(manual(3), 3);
    submit(&mut state, "a", 2, "PT1H");
    let target = Target::Manual { count: 3, option: Default::default() };
    assert_eq!(steps(&state, NOW), [Step::Place(key("a"), vec![node_id(1), node_id(2)], target)]);
}

/// Makes the cluster a low-priority one.
fn low_priority(state: &mut State) {
    change(state, |txn| {
        txn.update::<ClusterRecord>(&cluster_key(), |cluster| cluster.spec.vm_priority = VmPriority::LowPriority);
    });
}

fn preempt(state: &mut State, node: u32) {
    let preemption = SchedulingConfig::DEFAULT.preemption(PreemptionCause::Asked, NOW);
    change(state, |txn| assert!(txn.preempt(&node_id(node), preemption), "it was not taken back before"));
}

#[test]
fn a_preempted_node_is_replaced_and_its_job_evicted_with_grace() {
    let mut state = state(manual(3), 3);
    low_priority(&mut state);
    submit(&mut state, "a", 2, "PT1H");
    start(&mut state, "a", &[1, 2]);
    preempt(&mut state, 2);
    let steps = steps(&state, NOW);
    assert_eq!(allocated(&state), 1);
    let evicted = steps.iter().find_map(|step| match step {
        Step::Evict(job, evicted) if *job == key("a") => Some(evicted),
        _ => None,
    });
    let evicted = evicted.expect("the job must give up its nodes");
    assert_eq!((evicted.reason.code.as_str(), evicted.grace_ms), (NODE_PREEMPTED, 30_000));
    let node = node_id(2);
    assert_eq!(
        evicted.reason.message,
        format!(
            "Low-priority node {node} was preempted while the job ran on it (an operator requested it): the job waits again, and runs from its beginning with the same output directory"
        )
    );
    // An idle node is retired at once.
    preempt(&mut state, 3);
    assert_eq!(retired(&state, NOW), [node_id(3)]);
    assert_eq!(allocated(&state), 2);
    // A second preemption has no effect.
    change(&mut state, |txn| {
        let again = SchedulingConfig::DEFAULT.preemption(PreemptionCause::Dedicated, NOW);
        assert!(!txn.preempt(&node_id(3), again) && !txn.preempt(&NodeId::new(9, 9, NOW), again));
    });
}
