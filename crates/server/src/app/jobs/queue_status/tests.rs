//! Queue explanations for hand-made states.

use corro_model::batchai::BatchAiError;
use corro_model::state::{NodeEvent, PreemptionCause};
use corro_store::NodeRecord;
use serde_json::json;

use super::*;
use crate::testing::*;

fn status(state: &State, name: &str) -> QueueStatus {
    let key = key(name);
    let mut waits = QueueStatuses::compute(
        state,
        &ExpectedEnds::default(),
        &Caller::server(),
        &SchedulingConfig::DEFAULT,
        &Timeline::starting(NOW),
        [(&key, &*state.jobs[&key])],
    );
    waits.remove(&key).expect("the job waits")
}

#[test]
fn a_job_that_can_never_run_says_what_to_do() {
    let mut state = state(manual(4), 4);
    submit(&mut state, "big", 8, "PT1H");
    let big = status(&state, "big");
    assert_eq!(
        big.reason.as_deref(),
        Some(
            "the job needs 8 nodes and cluster NC6 has at most 4: \
             resize it with 'corro batchai cluster resize -g g -w w -n NC6 -t 8', or delete the job"
        )
    );
    assert_eq!((big.waiting.estimated_start, big.waiting.resize_to), (None, Some(8)));
    let mut state = crate::testing::state(json!({"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4}}), 0);
    submit(&mut state, "big", 8, "PT1H");
    let why = status(&state, "big").reason.unwrap_or_default();
    assert!(why.contains("with 'corro batchai cluster auto-scale -g g -w w -n NC6 --min 1 --max 8'"), "{why}");
}

#[test]
fn the_first_and_later_jobs_explain_their_wait() {
    let mut state = state(manual(3), 3);
    submit(&mut state, "r", 2, "PT1H");
    start(&mut state, "r", &[1, 2]);
    submit(&mut state, "a", 3, "PT1H");
    submit(&mut state, "b", 1, "PT2H");
    submit(&mut state, "c", 2, "PT2H");
    let a = status(&state, "a");
    assert_eq!(a.reason.as_deref(), Some("the job is next and needs 3 nodes: 1 of cluster NC6 are idle now"));
    assert_eq!(a.waiting.reason, WaitReason::NodesBusy);
    assert_eq!((a.waiting.position, a.waiting.nodes_needed, a.waiting.resize_to), (1, 3, Some(5)));
    assert_eq!(a.waiting.estimated_start, Some(at(3600)));
    assert_eq!(a.waiting.estimate_basis, Some(EstimateBasis::Limits));
    let by = format_time(at(3600));
    assert_eq!(
        a.waiting.unblocked_by,
        [
            format!("2 more idle nodes: R ends by {by}"),
            "5 nodes for cluster NC6: resize it with 'corro batchai cluster resize -g g -w w -n NC6 -t 5'".to_owned()
        ]
    );
    let b = status(&state, "b");
    assert_eq!(b.waiting.reason, WaitReason::WouldDelay);
    assert_eq!(
        b.reason.as_deref(),
        Some(
            "cluster NC6 has idle nodes, but the job could run until its limit of PT2H and delay A, which comes first"
        )
    );
    assert_eq!(b.waiting.unblocked_by[0], format!("A having started, by {by} at the latest"));
    assert_eq!(
        b.waiting.unblocked_by[1],
        "a wall-clock limit that fits: submit the job again with constraints.maxWallClockTime set to what it needs, PT1H or less"
    );
    let c = status(&state, "c");
    assert_eq!(c.reason.as_deref(), Some("2 jobs of cluster NC6 come first, and the first that waits is A"));
    assert_eq!((c.waiting.reason, c.waiting.position), (WaitReason::Behind, 3));
}

#[test]
fn a_job_that_waits_for_others_has_no_place_in_the_queue() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    submit_after(&mut state, "b", &["a"]);
    submit(&mut state, "c", 1, "PT1H");
    let b = status(&state, "b");
    assert_eq!(b.reason.as_deref(), Some("job A must succeed first"));
    assert_eq!((b.waiting.reason, b.waiting.position), (WaitReason::Dependencies, 0));
    assert_eq!(b.waiting.unblocked_by, ["the success of A, which is queued"]);
    let c = status(&state, "c");
    assert_eq!((c.waiting.reason, c.waiting.position), (WaitReason::NodesBusy, 2), "only A is before it");
}

#[test]
fn a_job_about_to_start_waits_for_nothing() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    let a = status(&state, "a");
    assert_eq!((a.reason, a.waiting.reason), (None, WaitReason::Starting));
    assert_eq!((a.waiting.estimated_start, a.waiting.estimate_basis), (Some(NOW), Some(EstimateBasis::Nodes)));
}

#[test]
fn the_estimate_uses_run_times_of_the_experiment() {
    let mut state = state(manual(1), 1);
    for (name, took) in [("x", 10), ("y", 300), ("z", 40)] {
        submit(&mut state, name, 1, "PT1H");
        start(&mut state, name, &[1]);
        end(&mut state, name, at(took));
    }
    submit(&mut state, "r", 1, "P7D");
    start(&mut state, "r", &[1]);
    submit(&mut state, "a", 1, "P7D");
    let a = status(&state, "a").waiting;
    assert_eq!((a.estimated_start, a.estimate_basis), (Some(at(40)), Some(EstimateBasis::History)));
}

#[test]
fn a_job_beyond_its_usual_run_time_is_noted_and_its_limit_used() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "x", 1, "PT1H");
    start(&mut state, "x", &[1]);
    end(&mut state, "x", at(40));
    submit(&mut state, "r", 1, "P7D");
    start(&mut state, "r", &[1]);
    submit(&mut state, "a", 1, "P7D");
    let key = key("a");
    let clock = Timeline::starting(at(60));
    let mut waits = QueueStatuses::compute(
        &state,
        &ExpectedEnds::default(),
        &Caller::server(),
        &SchedulingConfig::DEFAULT,
        &clock,
        [(&key, &*state.jobs[&key])],
    );
    let a = waits.remove(&key).expect("the job waits").waiting;
    assert_eq!((a.estimated_start, a.estimate_basis), (Some(at(7 * 24 * 3600)), Some(EstimateBasis::Limits)));
    let explanation = &a.unblocked_by[0];
    assert!(explanation.ends_with("(it has run longer than jobs of its experiment usually do: 40 s)"), "{explanation}");
}

#[test]
fn the_estimate_uses_the_progress_of_the_running_job() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "x", 1, "PT1H");
    start(&mut state, "x", &[1]);
    end(&mut state, "x", at(40));
    submit(&mut state, "r", 1, "P7D");
    start(&mut state, "r", &[1]);
    submit(&mut state, "a", 1, "P7D");
    let (key, running) = (key("a"), key("r"));
    let ends = ExpectedEnds::default();
    ends.set(&state.jobs[&running].state().nodes()[0], Some(Duration::from_secs(3600)));
    let clock = Timeline::starting(at(60));
    let mut waits = QueueStatuses::compute(
        &state,
        &ends,
        &Caller::server(),
        &SchedulingConfig::DEFAULT,
        &clock,
        [(&key, &*state.jobs[&key])],
    );
    let a = waits.remove(&key).expect("the job waits").waiting;
    let start = a.estimated_start.expect("an estimate");
    assert!(at(3600) < start && start <= at(3660), "{start}");
    assert_eq!(a.estimate_basis, Some(EstimateBasis::History));
    let explanation = &a.unblocked_by[0];
    assert!(explanation.contains(" (by its epochs at about "), "{explanation}");
}

#[test]
fn suggested_limits_are_round() {
    let rounded = |seconds| round_limit(Duration::from_secs(seconds)).map(|limit| Span(limit).to_string());
    let six_days = 6 * 86_400 + 23 * 3600 + 50 * 60 + 53;
    assert_eq!(
        [59, 61, 3599, 7300, six_days].map(rounded),
        [None, Some("PT1M".into()), Some("PT59M".into()), Some("PT2H".into()), Some("P6D".into())]
    );
}

#[test]
fn only_queued_jobs_of_a_list_have_a_status() {
    let mut state = state(manual(1), 1);
    for name in ["r", "a", "b"] {
        submit(&mut state, name, 1, "PT1H");
    }
    start(&mut state, "r", &[1]);
    let jobs = state.jobs.iter().map(|(key, job)| (key, &**job));
    let mut waits = QueueStatuses::compute(
        &state,
        &ExpectedEnds::default(),
        &Caller::server(),
        &SchedulingConfig::DEFAULT,
        &Timeline::starting(NOW),
        jobs,
    );
    let positions = ["r", "a", "b"].map(|name| waits.remove(&key(name)).map(|wait| wait.waiting.position));
    assert_eq!(positions, [None, Some(1), Some(2)]);
}

/// Nodes of a cluster that are not idle for reasons other than jobs.
#[test]
fn unready_nodes_are_listed_with_remedies() {
    let waiting = |change_state: &dyn Fn(&mut State), rules: &SchedulingConfig| {
        let mut state = state(manual(2), 1);
        submit(&mut state, "a", 2, "PT1H");
        change_state(&mut state);
        let key = key("a");
        let mut waits = QueueStatuses::compute(
            &state,
            &ExpectedEnds::default(),
            &Caller::server(),
            rules,
            &Timeline::starting(NOW),
            [(&key, &*state.jobs[&key])],
        );
        let status = waits.remove(&key).expect("the job waits");
        (status.reason.unwrap_or_default(), status.waiting.unblocked_by.join("; "))
    };
    let usual = SchedulingConfig::DEFAULT;
    let (why, helps) = waiting(&|_| {}, &usual);
    assert!(why.ends_with("1 of cluster NC6 are idle now (1 requested and not running yet)"), "{why}");
    assert!(helps.starts_with("1 more node of cluster NC6 being ready"), "{helps}");

    let second = |state: &mut State, event: Option<NodeEvent>| {
        change(state, |txn| {
            txn.put(node_id(2), NodeRecord::allocating(cluster_key(), 2, String::new(), NOW));
            txn.node_event(&node_id(2), NodeEvent::Joined, NOW).expect("it was allocating");
            event.into_iter().for_each(|event| txn.node_event(&node_id(2), event, NOW).expect("it prepares"));
        });
    };
    let (why, _) = waiting(&|state| second(state, None), &usual);
    assert!(why.ends_with("(1 being prepared)"), "{why}");

    let failed = || NodeEvent::Broken { error: BatchAiError::new("SetupTaskFailed", "it failed"), lost: false };
    let (why, helps) = waiting(&|state| second(state, Some(failed())), &usual);
    assert!(why.ends_with("(1 unusable)"), "{why}");
    assert!(
        helps.contains("1 unusable node of cluster NC6 being repaired: see 'corro batchai cluster show"),
        "{helps}"
    );

    // A node of this cluster has one core, and the region's quota is one core.
    let (why, helps) = waiting(&|_| {}, &SchedulingConfig { cores: 1, ..usual });
    assert!(why.ends_with("(1 without free cores)"), "{why}");
    assert!(helps.contains("cores for 1 more node in ") && helps.contains("a higher --max-cores"), "{helps}");
    assert!(!helps.contains("resize it"), "a larger cluster would not help: {helps}");

    let preempted = |state: &mut State| {
        second(state, Some(NodeEvent::Ready));
        let preemption = usual.preemption(PreemptionCause::Asked, NOW);
        change(state, |txn| assert!(txn.preempt(&node_id(2), preemption)));
    };
    let (why, _) = waiting(&preempted, &usual);
    assert!(why.contains("1 being preempted"), "{why}");
}

#[test]
fn a_cluster_at_its_maximum_says_so() {
    let mut state = state(json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}), 1);
    submit(&mut state, "r", 1, "PT1H");
    start(&mut state, "r", &[1]);
    submit(&mut state, "a", 1, "PT1H");
    let helps = status(&state, "a").waiting.unblocked_by.join("; ");
    assert!(
        helps.contains("raise its maximum with 'corro batchai cluster auto-scale -g g -w w -n NC6 --min 0 --max 2'"),
        "{helps}"
    );
}
