//! Passes over hand-made states and observations: which nodes get jobs.

use corro_model::batchai::BatchAiError;
use corro_model::layout::Role;
use corro_model::node::{AGENT_RESTARTED, ObservedNode, ObservedTask, RankExit, TaskFailure, TaskPhase};
use corro_model::state::{JobEvent, Termination};
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
    decide_scoped(&input, scope, &mut GangMemory::default()).0
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
    let task =
        ObservedTask { attempt, phase: TaskPhase::Ended { failure: Some(failure) }, exits: Vec::new(), elastic: None };
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

/// A report that the only rank of the attempt has exited with this code.
fn exited(state: &State, name: &str, exit_code: i32) -> ObservedNode {
    let attempt = state.jobs[&key(name)].attempt();
    let exit = RankExit {
        rank: 0,
        role: Role::Rank,
        index: 0,
        exit_code: Some(exit_code),
        signal: None,
        stopped: false,
        at: NOW,
        stderr_tail: "Traceback\nboom\n".to_owned(),
        out_of_memory: None,
        out_of_processes: None,
        gpu_errors: Vec::new(),
    };
    let task = ObservedTask { attempt, phase: TaskPhase::Ended { failure: None }, exits: vec![exit], elastic: None };
    ObservedNode { task: Some(task), ..ready() }
}

/// The steps of a full and of an incremental pass, which must be the same.
fn decide_both(state: &State, observations: &Observations) -> Vec<Step> {
    let full = decide_steps(state, observations, PassScope::Full);
    let (nodes, jobs) = (observations.keys().cloned().collect(), BTreeSet::new());
    let incremental = decide_steps(state, observations, PassScope::Changed { nodes: &nodes, jobs: &jobs, state: true });
    assert_eq!(full, incremental);
    full
}

#[test]
fn a_job_is_placed_in_the_pass_that_ends_its_dependency() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    submit_after(&mut state, "b", &["a"]);
    submit(&mut state, "later", 1, "PT1H");
    start(&mut state, "a", &[1]);
    let waiting = Observations::from([(node_id(1), connected(ready()))]);
    assert_eq!(decide_both(&state, &waiting), []);
    let done = Observations::from([(node_id(1), connected(exited(&state, "a", 0)))]);
    let steps = decide_both(&state, &done);
    assert_eq!(placed(&steps), [(&key("b"), &[node_id(1)][..])], "{steps:?}");
    assert!(steps.contains(&Step::MeetDependency(key("b"), key("a"))), "{steps:?}");
    let failed = Observations::from([(node_id(1), connected(exited(&state, "a", 3)))]);
    let steps = decide_both(&state, &failed);
    assert_eq!(placed(&steps), [(&key("later"), &[node_id(1)][..])], "{steps:?}");
    let names_b = |step: &&Step| matches!(step, Step::EndAttempt(job, JobEvent::Failed { .. }) if *job == key("b"));
    assert_eq!(steps.iter().filter(names_b).count(), 1, "{steps:?}");
}

#[test]
fn no_node_is_added_or_reserved_for_a_job_that_waits_for_others() {
    let auto = serde_json::json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4}});
    let mut state = state(auto, 1);
    submit(&mut state, "a", 1, "PT1H");
    submit_spec(&mut state, "big", serde_json::json!({"nodeCount": 4, "schedulingPriority": "high"}), &["a"]);
    submit(&mut state, "small", 1, "PT1H");
    start(&mut state, "a", &[1]);
    let observations = Observations::from([(node_id(1), connected(ready()))]);
    let allocated = |state: &State| -> usize {
        let steps = decide_steps(state, &observations, PassScope::Full);
        steps.iter().map(|step| if let Step::Allocate(_, count, _) = step { *count } else { 0 }).sum()
    };
    assert_eq!(allocated(&state), 1, "for the small job only");
    end(&mut state, "a", NOW);
    assert_eq!(allocated(&state), 3, "up to the maximum");
}

#[test]
fn a_failed_attempt_is_retried_up_to_the_limit() {
    let mut state = state(manual(1), 1);
    submit_spec(&mut state, "a", serde_json::json!({"nodeCount": 1, "constraints": {"maxRetryCount": 2}}), &[]);
    for attempt in 1..=3 {
        start(&mut state, "a", &[1]);
        let failed = Observations::from([(node_id(1), connected(exited(&state, "a", attempt)))]);
        let steps = decide_both(&state, &failed);
        match &steps[0] {
            Step::Retry(job, exit_code, reason) if attempt < 3 => {
                assert_eq!((job, *exit_code, reason.code.as_str()), (&key("a"), attempt, "JobFailed"));
                assert!(reason.details.iter().any(|detail| detail.name == "StdErr" && detail.value == "boom"));
                assert_eq!(placed(&steps).len(), 1, "it starts again at once");
            }
            Step::EndAttempt(_, JobEvent::Failed { exit_code, .. }) if attempt == 3 => assert_eq!(*exit_code, Some(3)),
            step => panic!("attempt {attempt}: {step:?}"),
        }
        let ending = steps.into_iter().take(1).collect();
        change(&mut state, |txn| apply(txn, ending, NOW));
    }
    let job = &state.jobs[&key("a")];
    let codes: Vec<_> = job.lost_attempts.iter().map(|lost| (lost.number, lost.exit_code)).collect();
    assert_eq!((job.failed_attempts(), codes), (2, vec![(1, Some(1)), (2, Some(2))]));
    assert_eq!(job.state().name(), "failed");
}

#[test]
fn lost_nodes_use_up_no_retry() {
    let mut state = state(manual(1), 1);
    submit_spec(&mut state, "a", serde_json::json!({"nodeCount": 1, "constraints": {"maxRetryCount": 1}}), &[]);
    start(&mut state, "a", &[1]);
    change(&mut state, |txn| txn.requeue(&key("a"), BatchAiError::new("NodeLost", "gone"), NOW).expect("it runs"));
    start(&mut state, "a", &[1]);
    let failed = Observations::from([(node_id(1), connected(exited(&state, "a", 1)))]);
    assert!(matches!(&decide_both(&state, &failed)[0], Step::Retry(..)));
}

#[test]
fn a_job_that_is_stopped_is_not_retried() {
    let retries = serde_json::json!({"maxRetryCount": 5, "maxWallClockTime": "PT1H"});
    let check = |stop: &dyn Fn(&mut State), observed: &dyn Fn(&State) -> NodeObservation| {
        let mut state = state(manual(1), 1);
        submit_spec(&mut state, "a", serde_json::json!({"nodeCount": 1, "constraints": retries}), &[]);
        start(&mut state, "a", &[1]);
        stop(&mut state);
        let observations = Observations::from([(node_id(1), observed(&state))]);
        let steps = decide_both(&state, &observations);
        assert!(matches!(&steps[0], Step::EndAttempt(_, JobEvent::Failed { .. })), "{steps:?}");
    };
    let failed = |state: &State| connected(exited(state, "a", 1));
    let terminated = |state: &mut State| {
        let event = JobEvent::TerminateRequested { cause: Termination::User, at: NOW };
        change(state, |txn| txn.job_event(&key("a"), event, NOW).expect("it runs"));
    };
    check(&terminated, &failed);
    let overdue = |state: &State| NodeObservation { run_time: Some(Duration::from_secs(3601)), ..failed(state) };
    check(&|_| {}, &overdue);
    let mount_failed = |state: &State| {
        let error = BatchAiError::new("AZFMountError", "Unable to mount Azure File");
        let failure = TaskFailure { exit_code: None, error, at: NOW };
        let phase = TaskPhase::Ended { failure: Some(failure) };
        let task = ObservedTask { attempt: state.jobs[&key("a")].attempt(), phase, exits: Vec::new(), elastic: None };
        connected(ObservedNode { task: Some(task), ..ready() })
    };
    check(&|_| {}, &mount_failed);
}
