//! Decides how running jobs continue: builds each job's [`Gang`] from its nodes' reports and turns the outcome into steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corro_model::batchai::BatchAiError;
use corro_model::explain::NODE_LOST;
use corro_model::node::{GangAddress, Goal};
use corro_model::state::{JobEvent, JobState, NodeState};
use corro_model::{AttemptId, JobKey, NodeId, Timestamp, retry};
use corro_store::{JobRecord, LostAttempt, State, Timeline};

use super::elastic;
use super::gang::{self, Gang, Member, Outcome};
use super::pass_input::GangMemory;
use super::scaling::NODE_PREEMPTED;
use super::steps::Step;
use crate::gateway::NodeObservation;

/// Number of attempts lost to node failures after which a job fails.
pub const MAX_LOST_ATTEMPTS: usize = 3;

/// Returns the steps for these jobs and the goal of each attempt that continues. Keeps rendezvous addresses and elastic gangs in `memory`.
pub fn decide<'a>(
    jobs: impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)>,
    state: &State,
    observations: &BTreeMap<NodeId, NodeObservation>,
    clock: &Timeline,
    memory: &mut GangMemory,
) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let (mut steps, mut goals) = (Vec::new(), Vec::new());
    for (key, job) in jobs {
        let attempt = job.attempt();
        let gang = gang_of(state, observations, clock, job, &attempt, memory.addresses.get(&attempt));
        if job.spec.elastic.is_some() {
            let mut known = memory.elastic.remove(&attempt);
            let decision = elastic::decide((key, job), &gang, &mut known, clock);
            memory.elastic.extend(known.map(|known| (attempt.clone(), known)));
            steps.extend(decision.steps);
            goals.extend(decision.goal.map(|goal| (attempt, goal)));
            if let Some(outcome) = decision.end {
                let may_retry = may_retry(job) && gang.overdue.is_none();
                steps.push(outcome_step(key, job, outcome, may_retry, clock.now()));
            }
            continue;
        }
        if let Some(address) = gang::address(&gang) {
            memory.addresses.insert(attempt.clone(), address);
        }
        match gang::decide(&gang) {
            gang::GangDecision::Continue(goal) => goals.push((attempt, goal)),
            gang::GangDecision::End(outcome) => {
                let may_retry = may_retry(job) && gang.overdue.is_none();
                steps.push(outcome_step(key, job, outcome, may_retry, clock.now()));
            }
        }
    }
    (steps, goals)
}

fn gang_of<'a>(
    state: &State,
    observations: &'a BTreeMap<NodeId, NodeObservation>,
    clock: &Timeline,
    job: &'a JobRecord,
    attempt: &AttemptId,
    known_address: Option<&GangAddress>,
) -> Gang<'a> {
    let member = |node: &'a NodeId| {
        let record = state.nodes.get(node);
        let busy = record.is_some_and(
            |record| matches!(record.state(), NodeState::Running { attempt: busy_with, .. } if busy_with == attempt),
        );
        let observation = observations.get(node);
        Member {
            node,
            lost: !busy,
            gone: record.is_none(),
            connected: observation.is_some_and(NodeObservation::is_available),
            // Every report has the node's address.
            is_known: observation.is_some_and(|seen| seen.observed.address.is_some()),
            report: observation.and_then(|s| s.observed.task.as_ref()).filter(|task| task.attempt == *attempt),
        }
    };
    let limit = job.spec.constraints.max_wall_clock_time;
    let reports = job.state().nodes().iter().filter_map(|node| observations.get(node));
    let reports = reports.filter(|seen| seen.observed.task.as_ref().is_some_and(|task| task.attempt == *attempt));
    let run_time = run_time(reports, job.state().started().unwrap_or(clock.now()), clock);
    Gang {
        members: job.state().nodes().iter().map(member).collect(),
        terminating: matches!(job.state(), JobState::Terminating { .. }),
        evicted: job.eviction().map(|evicted| evicted.grace_ms),
        overdue: (run_time > limit.0).then(|| limit.to_string()),
        known_address: known_address.cloned(),
        n_ranks: job.spec.rank_count(),
        has_servers: job.spec.parameter_server_count() > 0,
    }
}

/// Run time of an attempt. The node that started it first reports the time by its monotonic clock. For agents of earlier versions,
/// which do not, it is the age of the attempt's timestamp. Until a node has reported the attempt to this process, time before
/// the server's start does not count: the wall clock may have been set meanwhile, and a report will be exact.
fn run_time<'a>(reports: impl Iterator<Item = &'a NodeObservation>, started: Timestamp, clock: &Timeline) -> Duration {
    let (mut is_reported, mut longest) = (false, None);
    for report in reports {
        is_reported = true;
        longest = longest.max(report.run_time);
    }
    let age = clock.age(started);
    longest.unwrap_or(if is_reported { age } else { age.min(clock.uptime()) })
}

/// Whether the job has a retry left. A job that is being terminated has none.
fn may_retry(job: &JobRecord) -> bool {
    matches!(job.state(), JobState::Running { .. }) && job.failed_attempts() < job.spec.constraints.max_retry_count
}

fn outcome_step(key: &JobKey, job: &JobRecord, outcome: Outcome, may_retry: bool, now: Timestamp) -> Step {
    match outcome {
        Outcome::Succeeded => Step::EndAttempt(key.clone(), JobEvent::Succeeded { at: now }),
        // Without an exit code no program has run: a file is missing, for example.
        Outcome::Failed { exit_code: Some(exit_code), mut errors }
            if may_retry && errors.first().is_some_and(retry::is_retriable) =>
        {
            Step::Retry(key.clone(), exit_code, retry::shortened(errors.swap_remove(0)))
        }
        Outcome::Failed { exit_code, errors } => {
            Step::EndAttempt(key.clone(), JobEvent::Failed { exit_code, errors, at: now })
        }
        Outcome::Interrupted => {
            let message = "The job was stopped before it was done, and runs again from its beginning";
            let reason = job.eviction().map(|evicted| evicted.reason.clone());
            Step::Requeue(key.clone(), reason.unwrap_or_else(|| BatchAiError::new("JobInterrupted", message)))
        }
        Outcome::NodeLost { node } => {
            // Preempted nodes may disappear early or one by one; an evicted job does not count that as a loss.
            if let Some(evicted) = job.eviction().filter(|evicted| evicted.reason.code == NODE_PREEMPTED) {
                return Step::Requeue(key.clone(), evicted.reason.clone());
            }
            let lost = |attempt: &&LostAttempt| attempt.reason.code == NODE_LOST;
            let earlier_losses: Vec<&LostAttempt> = job.lost_attempts.iter().filter(lost).collect();
            if earlier_losses.len() + 1 < MAX_LOST_ATTEMPTS {
                let message = match job.cause_of_loss(&node) {
                    Some(cause) => format!("{cause}; the job ran on it"),
                    None => format!("Node {node} was lost while the job ran on it"),
                };
                return Step::Requeue(key.clone(), BatchAiError::new(NODE_LOST, message).with("Node", node.as_str()));
            }
            let error = too_many_losses(job, &earlier_losses, &node, now);
            Step::EndAttempt(key.clone(), JobEvent::Failed { exit_code: None, errors: vec![error], at: now })
        }
    }
}

/// Error that lists every loss with its attempt, node and time.
fn too_many_losses(job: &JobRecord, earlier_losses: &[&LostAttempt], last: &NodeId, now: Timestamp) -> BatchAiError {
    let node_of = |error: &BatchAiError| {
        let node = error.details.iter().find(|detail| detail.name == "Node");
        node.map_or_else(|| "a node".to_owned(), |detail| detail.value.clone())
    };
    let describe_loss =
        |attempt: u32, node: &str, at: Timestamp| format!("attempt {attempt} {node} at {}", at.whole_seconds());
    let earlier = earlier_losses.iter().map(|lost| describe_loss(lost.number, &node_of(&lost.reason), lost.ended));
    let losses: Vec<String> = earlier.chain([describe_loss(job.attempts, last.as_str(), now)]).collect();
    let cause = job.cause_of_loss(last).map_or_else(String::new, |cause| format!(". The last: {cause}"));
    let message = format!(
        "The job lost a node in each of {} attempts and is not tried again: {}{cause}",
        losses.len(),
        losses.join(", ")
    );
    BatchAiError::new(NODE_LOST, message).with("Node", last.as_str())
}

#[cfg(test)]
mod tests {
    use corro_model::node::ObservedNode;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);
    const START: Timestamp = Timestamp::from_millis(1_542_000_000_000);

    fn observation(run_time: Option<Duration>) -> NodeObservation {
        let (silent_for, observed) = (Duration::ZERO, ObservedNode::default());
        NodeObservation { epoch: 1, connected: true, silent_for, observed, run_time }
    }

    /// Clock of a server that started an hour after the job, set forward by ten days in its second hour.
    fn jumped() -> Timeline {
        let mut clock = Timeline::starting(START.plus(HOUR));
        clock.observe(START.plus(2 * HOUR), HOUR);
        clock.observe(START.plus(2 * HOUR + 10 * DAY), HOUR).expect("a jump");
        clock
    }

    #[test]
    fn a_jump_of_the_clock_is_no_run_time() {
        let check = |reports: &[Option<Duration>], clock: &Timeline, expected: Duration| {
            let reports: Vec<NodeObservation> = reports.iter().copied().map(observation).collect();
            assert_eq!(run_time(reports.iter(), START, clock), expected);
        };
        let minutes = |n: u64| Duration::from_secs(n * 60);
        check(&[Some(minutes(119)), None, Some(minutes(120))], &jumped(), minutes(120));
        check(&[None, None], &jumped(), 2 * HOUR);
        check(&[], &jumped(), HOUR);
        // The clock was set while the server was down.
        let late = Timeline::starting(START.plus(5 * DAY));
        check(&[Some(minutes(3))], &late, minutes(3));
        check(&[], &late, Duration::ZERO);
        check(&[None], &late, 5 * DAY);
    }
}
