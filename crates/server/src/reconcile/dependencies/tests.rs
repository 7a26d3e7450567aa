//! Decisions about hand-made jobs that wait for others.

use corro_model::batchai::ProvisioningState;
use corro_model::state::Termination;
use corro_store::{ClusterRecord, JobRecord};

use super::*;
use crate::reconcile::steps::apply;
use crate::testing::*;

/// Each step in a few words; a failure with its message.
fn decided(state: &State) -> Vec<String> {
    let words = |step: Step| match step {
        Step::MeetDependency(job, dependency) => format!("{} no longer waits for {}", name(&job), name(&dependency)),
        Step::EndAttempt(job, JobEvent::Failed { errors, exit_code: None, .. }) => {
            assert_eq!(errors[0].code, DEPENDENCY_FAILED);
            format!("{}: {}", name(&job), errors[0].message)
        }
        Step::Terminate(job) => format!("{} is terminated", name(&job)),
        step => panic!("{step:?}"),
    };
    decide(state, NOW).into_iter().map(words).collect()
}

fn name(key: &JobKey) -> &str {
    key.as_str().rsplit('/').next().expect("a key has parts")
}

fn fail(state: &mut State, name: &str, exit_code: Option<i32>, error: BatchAiError) {
    let event = JobEvent::Failed { exit_code, errors: vec![error], at: NOW };
    change(state, |txn| txn.end_attempt(&key(name), event, NOW).expect("it has not ended"));
}

fn job_failed() -> BatchAiError {
    BatchAiError::new("JobFailed", "Job failed with non-zero exit code")
}

fn terminate(state: &mut State, name: &str) {
    let event = JobEvent::TerminateRequested { cause: Termination::User, at: NOW };
    change(state, |txn| txn.job_event(&key(name), event, NOW).expect("it has not ended"));
}

/// `a` and `b`, and `c` that waits for both.
fn waiting() -> State {
    let mut state = state(manual(2), 2);
    submit(&mut state, "a", 1, "PT1H");
    submit(&mut state, "b", 1, "PT1H");
    submit_after(&mut state, "c", &["a", "b"]);
    state
}

#[test]
fn a_job_waits_until_all_have_succeeded() {
    let mut state = waiting();
    assert_eq!(state.queue_length(&cluster_key()), 2, "the planner does not see it");
    assert!(decided(&state).is_empty());
    start(&mut state, "a", &[1]);
    assert!(decided(&state).is_empty());
    end(&mut state, "a", NOW);
    assert_eq!(decided(&state), ["c no longer waits for a"]);
    let steps = decide(&state, NOW);
    change(&mut state, |txn| apply(txn, steps, NOW));
    assert!(decided(&state).is_empty(), "it is decided once");
    // A success counts even when the job is deleted afterwards.
    change(&mut state, |txn| txn.remove::<JobRecord>(&key("a")));
    start(&mut state, "b", &[1]);
    end(&mut state, "b", NOW);
    let steps = decide(&state, NOW);
    change(&mut state, |txn| apply(txn, steps, NOW));
    assert_eq!((state.queue_length(&cluster_key()), state.jobs[&key("c")].state()), (1, &JobState::Queued));
}

#[test]
fn an_attempt_that_is_retried_decides_nothing() {
    let mut state = waiting();
    start(&mut state, "a", &[1]);
    change(&mut state, |txn| txn.retry(&key("a"), 3, job_failed(), NOW).expect("it runs"));
    assert!(decided(&state).is_empty());
}

#[test]
fn a_job_fails_with_the_cause_of_its_dependency() {
    let check = |end: &dyn Fn(&mut State), expected: &str| {
        let mut state = waiting();
        end(&mut state);
        assert_eq!(decided(&state), [format!("c: The job was not started because {expected}")]);
    };
    let hint = "fix the cause, then submit both jobs again";
    let failed = |state: &mut State| {
        start(state, "a", &[1]);
        fail(state, "a", Some(3), job_failed());
    };
    check(&failed, &format!("job A failed with exit code 3: {hint}"));
    let error =
        || BatchAiError::new("NodeLost", "The job lost a node in each of 3 attempts: attempt 1 n1. The last: gone");
    let expected = format!("job A failed (The job lost a node in each of 3 attempts): {hint}");
    check(&|state| fail(state, "a", None, error()), &expected);
    check(&|state| terminate(state, "a"), &format!("job A was terminated: {hint}"));
    let deleted = |state: &mut State| {
        terminate(state, "a");
        change(state, |txn| {
            txn.update::<JobRecord>(&key("a"), |job| job.provisioning.set_state(ProvisioningState::Deleting, NOW));
        });
    };
    check(&deleted, &format!("job A was deleted: {hint}"));
    check(&|state| change(state, |txn| txn.remove::<JobRecord>(&key("a"))), &format!("job a was deleted: {hint}"));
}

#[test]
fn a_failure_reaches_all_jobs_of_a_chain_at_once() {
    let mut state = state(manual(1), 1);
    submit(&mut state, "a", 1, "PT1H");
    for (name, dependency) in [("b", "a"), ("c", "b"), ("d", "c")] {
        submit_after(&mut state, name, &[dependency]);
    }
    submit_after(&mut state, "e", &["b", "c"]);
    start(&mut state, "a", &[1]);
    fail(&mut state, "a", Some(3), job_failed());
    let indirect = |job: &str| {
        format!(
            "The job was not started because job {job}, for which it waited, was not either: job A failed with exit code 3. \
             Fix the cause, then submit these jobs again"
        )
    };
    let expected = [
        "b: The job was not started because job A failed with exit code 3: fix the cause, then submit both jobs again"
            .to_owned(),
        format!("c: {}", indirect("B")),
        format!("e: {}", indirect("B")),
        format!("d: {}", indirect("C")),
    ];
    assert_eq!(decided(&state), expected);
    // The same in two passes: the cause is read from the stored error.
    let first = decide(&state, NOW).into_iter().take(1).collect();
    change(&mut state, |txn| apply(txn, first, NOW));
    assert_eq!(decided(&state), expected[1..]);
    let rest = decide(&state, NOW);
    change(&mut state, |txn| apply(txn, rest, NOW));
    assert!(decided(&state).is_empty());
    assert_eq!(state.queue_length(&cluster_key()), 0);
}

#[test]
fn waiting_jobs_end_with_their_cluster() {
    let mut state = waiting();
    change(&mut state, |txn| {
        txn.update::<ClusterRecord>(&cluster_key(), |c| c.provisioning.set_state(ProvisioningState::Deleting, NOW));
    });
    assert_eq!(decided(&state), ["c is terminated"]);
}

#[test]
fn a_success_is_checked_again_when_it_is_committed() {
    let mut state = waiting();
    let step = Step::MeetDependency(key("c"), key("a"));
    terminate(&mut state, "a");
    change(&mut state, |txn| apply(txn, vec![step], NOW));
    assert_eq!(state.jobs[&key("c")].unmet_dependencies(), [key("a"), key("b")]);
}
