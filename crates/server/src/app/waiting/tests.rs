//! What queued jobs say, in a state made by hand.

use serde_json::json;

use super::*;
use crate::testing::*;

fn standing(state: &State, name: &str) -> Standing {
    let key = key(name);
    let mut waits = Waits::of(state, &Caller::server(), NOW, [(&key, &*state.jobs[&key])]);
    waits.take(&key).expect("the job waits")
}

#[test]
fn a_job_that_can_never_run_says_what_to_do() {
    let mut state = state(manual(4), 4);
    submit(&mut state, "big", 8, "PT1H");
    let big = standing(&state, "big");
    assert_eq!(
        big.why.as_deref(),
        Some(
            "the job needs 8 nodes and cluster NC6 has at most 4: \
             resize it with 'corro batchai cluster resize -g g -w w -n NC6 -t 8', or delete the job"
        )
    );
    assert_eq!((big.standing.estimated_start, big.standing.resize_to), (None, Some(8)));
    let mut state = crate::testing::state(json!({"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4}}), 0);
    submit(&mut state, "big", 8, "PT1H");
    let why = standing(&state, "big").why.unwrap_or_default();
    assert!(why.contains("with 'corro batchai cluster auto-scale -g g -w w -n NC6 --min 1 --max 8'"), "{why}");
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
            "5 nodes for cluster NC6: resize it with 'corro batchai cluster resize -g g -w w -n NC6 -t 5'".to_owned()
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
        end(&mut state, name, at(took));
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
    let mut waits = Waits::of(&state, &Caller::server(), NOW, jobs);
    let positions = ["r", "a", "b"].map(|name| waits.take(&key(name)).map(|wait| wait.standing.position));
    assert_eq!(positions, [None, Some(1), Some(2)]);
}
