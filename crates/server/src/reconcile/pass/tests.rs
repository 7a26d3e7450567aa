//! Passes over hand-made states and observations: which nodes get jobs.

use corro_model::batchai::BatchAiError;
use corro_model::node::{AGENT_RESTARTED, ObservedNode, ObservedTask, TaskFailure, TaskPhase};
use corro_store::JobRecord;

use std::time::Duration;

use super::*;
use crate::provider::Provider;
use crate::reconcile::ReconcileConfig;
use crate::testing::*;

/// Provider whose agents are always alive.
struct AliveProvider;

impl Provider for AliveProvider {
    fn start(&self, _: &crate::NewNode, _: corro_model::Secret) {}
    fn is_alive(&self, _: &NodeId) -> Option<bool> {
        Some(true)
    }
    fn ask_to_stop(&self, _: &NodeId) {}
    fn ensure_gone(&self, _: &NodeId, _: bool) -> bool {
        false
    }
}

type Observations = BTreeMap<NodeId, NodeObservation>;

fn connected(observed: ObservedNode) -> NodeObservation {
    NodeObservation { epoch: 1, connected: true, silent_for: Duration::ZERO, observed, run_time: None }
}

fn ready() -> ObservedNode {
    ObservedNode { ready: true, ..ObservedNode::default() }
}

fn decide_steps(state: &State, observations: &Observations, scope: PassScope) -> Vec<Step> {
    let config = ReconcileConfig {
        lease: Duration::from_secs(10),
        containers_on_host: false,
        strict_isolation: None,
        masks_secrets: true,
        shared_temp: std::path::PathBuf::new(),
        shared_disk_probe: None,
        scheduling: crate::scheduler_view::SchedulingConfig::DEFAULT,
    };
    let (gone, emptied) = (BTreeSet::new(), BTreeSet::new());
    let (uptime, provider) = (Duration::from_secs(1), &AliveProvider);
    let clock = &Timeline::starting(NOW);
    let input =
        PassInput { state, observations, clock, uptime, gone: &gone, emptied: &emptied, config: &config, provider };
    decide_scoped(&input, scope, &mut GangAddresses::new()).0
}

fn placed(steps: &[Step]) -> Vec<(&JobKey, &[NodeId])> {
    let placed = steps.iter().filter_map(|step| match step {
        Step::Place(job, nodes, _) => Some((job, nodes.as_slice())),
        _ => None,
    });
    placed.collect()
}

#[test]
fn jobs_are_placed_on_available_nodes_only() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let node = node_id(1);
    let problem = Some(BatchAiError::new("ProcessesNotKilled", "they live"));
    for (observation, expected) in [
        (Some(connected(ready())), true),
        // The node is idle by its record; its report may be older.
        (Some(connected(ObservedNode::default())), true),
        (None, false),
        (Some(NodeObservation { connected: false, ..connected(ready()) }), false),
        (Some(connected(ObservedNode { ending: true, ..ready() })), false),
        (Some(connected(ObservedNode { problem, ..ready() })), false),
    ] {
        let observations: Observations =
            observation.into_iter().map(|observation| (node.clone(), observation)).collect();
        let news = BTreeSet::from([node.clone()]);
        for scope in [PassScope::Full, PassScope::Changed { nodes: &news, jobs: &BTreeSet::new(), state: false }] {
            let steps = decide_steps(&state, &observations, scope);
            assert_eq!(placed(&steps).len(), usize::from(expected), "{observations:?}: {steps:?}");
            assert!(!steps.iter().any(|step| matches!(step, Step::Allocate(..))), "it is still a node: {steps:?}");
        }
    }
}

#[test]
fn an_ending_agent_gets_no_further_job() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    submit(&mut state, "b", 1, "PT1H");
    start(&mut state, "a", &[1]);
    let attempt = state.jobs.get(&key("a")).map(|job: &std::sync::Arc<JobRecord>| job.attempt()).expect("it runs");
    let failure = TaskFailure { exit_code: None, error: BatchAiError::new(AGENT_RESTARTED, "stopped"), at: NOW };
    let task = ObservedTask { attempt, phase: TaskPhase::Ended { failure: Some(failure) }, exits: Vec::new() };
    let final_report = ObservedNode { ending: true, task: Some(task), ..ready() };
    let restarted = ObservedNode { ending: false, ..final_report.clone() };
    let steps = decide_steps(&state, &Observations::from([(node_id(1), connected(final_report))]), PassScope::Full);
    assert_eq!(steps, [], "the node may still come back");
    let steps = decide_steps(&state, &Observations::from([(node_id(1), connected(restarted))]), PassScope::Full);
    assert!(matches!(&steps[0], Step::Requeue(job, _) if *job == key("a")), "{steps:?}");
    assert_eq!(placed(&steps).len(), 1, "{steps:?}");
}

#[test]
fn a_nodes_address_is_recorded_before_it_gets_a_job() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let node = node_id(1);
    let known = state.nodes.get(&node).map(|record| record.address.clone());
    let observation = |address| Observations::from([(node.clone(), connected(ObservedNode { address, ..ready() }))]);
    let steps = decide_steps(&state, &observation(Some("10.88.0.2".to_owned())), PassScope::Full);
    assert_eq!(steps[0], Step::SetAddress(node.clone(), "10.88.0.2".to_owned()));
    assert_eq!(placed(&steps).len(), 1, "{steps:?}");
    for address in [known, None] {
        let steps = decide_steps(&state, &observation(address), PassScope::Full);
        assert!(!steps.iter().any(|step| matches!(step, Step::SetAddress(..))), "{steps:?}");
    }
}
