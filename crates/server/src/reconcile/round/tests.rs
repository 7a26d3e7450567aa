//! Whole passes over states and sightings made by hand: who is given a job, and who is not.

use corro_model::batchai::BatchAiError;
use corro_model::node::{AGENT_RESTARTED, ObservedNode, ObservedTask, TaskFailure, TaskPhase};
use corro_store::JobRecord;

use super::*;
use crate::testing::*;

/// All agents live.
struct Quiet;

impl Provider for Quiet {
    fn start(&self, _: &crate::NewNode, _: corro_model::Secret) {}
    fn is_alive(&self, _: &NodeId) -> Option<bool> {
        Some(true)
    }
    fn ask_to_stop(&self, _: &NodeId) {}
    fn ensure_gone(&self, _: &NodeId, _: bool) -> bool {
        false
    }
}

type Sightings = BTreeMap<NodeId, Sighting>;

fn there(observed: ObservedNode) -> Sighting {
    Sighting { epoch: 1, connected: true, silent_for: Duration::ZERO, observed, run_time: None }
}

fn ready() -> ObservedNode {
    ObservedNode { ready: true, ..ObservedNode::default() }
}

fn decide_on(state: &State, sightings: &Sightings, focus: Focus) -> Vec<Step> {
    let config = ReconcileConfig {
        lease: Duration::from_secs(10),
        containers_on_host: false,
        strict_isolation: None,
        masks_secrets: true,
        shared_temp: std::path::PathBuf::new(),
        landmark: None,
        rules: crate::reconcile::scaling::Rules::USUAL,
    };
    let (gone, emptied) = (BTreeSet::new(), BTreeSet::new());
    let (uptime, provider) = (Duration::from_secs(1), &Quiet);
    let clock = &Timeline::starting(NOW);
    let scene = Scene { state, sightings, clock, uptime, gone: &gone, emptied: &emptied, config: &config, provider };
    decide_in(&scene, focus, &mut Addresses::new()).0
}

fn placed(steps: &[Step]) -> Vec<(&JobKey, &[NodeId])> {
    let placed = steps.iter().filter_map(|step| match step {
        Step::Place(job, nodes, _) => Some((job, nodes.as_slice())),
        _ => None,
    });
    placed.collect()
}

#[test]
fn a_job_is_given_only_to_nodes_that_are_there_for_it() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let node = node_id(1);
    let problem = Some(BatchAiError::new("ProcessesNotKilled", "they live"));
    for (seen, fit) in [
        (Some(there(ready())), true),
        // What it says may come later than it does.
        (Some(there(ObservedNode::default())), true),
        (None, false),
        (Some(Sighting { connected: false, ..there(ready()) }), false),
        (Some(there(ObservedNode { ending: true, ..ready() })), false),
        (Some(there(ObservedNode { problem, ..ready() })), false),
    ] {
        let sightings: Sightings = seen.into_iter().map(|seen| (node.clone(), seen)).collect();
        let news = BTreeSet::from([node.clone()]);
        for focus in [Focus::Everything, Focus::New { nodes: &news, jobs: &BTreeSet::new(), state: false }] {
            let steps = decide_on(&state, &sightings, focus);
            assert_eq!(placed(&steps).len(), usize::from(fit), "{sightings:?}: {steps:?}");
            assert!(!steps.iter().any(|step| matches!(step, Step::Allocate(..))), "it is still a node: {steps:?}");
        }
    }
}

#[test]
fn an_agent_that_says_goodbye_is_not_given_the_next_job() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    submit(&mut state, "b", 1, "PT1H");
    start(&mut state, "a", &[1]);
    let attempt = state.jobs.get(&key("a")).map(|job: &std::sync::Arc<JobRecord>| job.attempt()).expect("it runs");
    let failure = TaskFailure { exit_code: None, error: BatchAiError::new(AGENT_RESTARTED, "stopped"), at: NOW };
    let task = ObservedTask { attempt, phase: TaskPhase::Ended { failure: Some(failure) }, exits: Vec::new() };
    let last_word = ObservedNode { ending: true, task: Some(task), ..ready() };
    let back = ObservedNode { ending: false, ..last_word.clone() };
    let steps = decide_on(&state, &Sightings::from([(node_id(1), there(last_word))]), Focus::Everything);
    assert_eq!(steps, [], "nobody knows yet whether the node comes back");
    let steps = decide_on(&state, &Sightings::from([(node_id(1), there(back))]), Focus::Everything);
    assert!(matches!(&steps[0], Step::Requeue(job, _) if *job == key("a")), "{steps:?}");
    assert_eq!(placed(&steps).len(), 1, "{steps:?}");
}

#[test]
fn a_node_is_where_it_says_it_is_before_it_is_given_a_job() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let node = node_id(1);
    let known = state.nodes.get(&node).map(|record| record.address.clone());
    let seen = |address| Sightings::from([(node.clone(), there(ObservedNode { address, ..ready() }))]);
    let steps = decide_on(&state, &seen(Some("10.88.0.2".to_owned())), Focus::Everything);
    assert_eq!(steps[0], Step::Address(node.clone(), "10.88.0.2".to_owned()));
    assert_eq!(placed(&steps).len(), 1, "{steps:?}");
    for address in [known, None] {
        let steps = decide_on(&state, &seen(address), Focus::Everything);
        assert!(!steps.iter().any(|step| matches!(step, Step::Address(..))), "{steps:?}");
    }
}
