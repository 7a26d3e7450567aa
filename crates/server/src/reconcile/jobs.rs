//! Decides how running jobs go on: gathers what the nodes of each say, asks `gang`, and turns endings into steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use corro_model::batchai::BatchAiError;
use corro_model::node::{GangAddress, Goal};
use corro_model::state::{JobEvent, JobState, NodeState};
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use corro_store::{JobRecord, LostAttempt, State};

use super::gang::{self, Ending, Gang, Member};
use super::round::Addresses;
use super::scaling::NODE_PREEMPTED;
use super::steps::Step;
use crate::gateway::Sighting;

/// A job that lost its nodes this often is not tried again.
pub const MAX_LOST_ATTEMPTS: usize = 3;

/// Steps for these jobs, and the goal of each one's attempt that goes on. Where their ranks meet is noted in `addresses`.
pub fn decide<'a>(
    jobs: impl Iterator<Item = (&'a JobKey, &'a Arc<JobRecord>)>,
    state: &State,
    sightings: &BTreeMap<NodeId, Sighting>,
    now: Timestamp,
    addresses: &mut Addresses,
) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let (mut steps, mut goals) = (Vec::new(), Vec::new());
    for (key, job) in jobs {
        let attempt = job.attempt();
        let gang = gather(state, sightings, now, job, &attempt, addresses.get(&attempt));
        if let Some(address) = gang::address(&gang) {
            addresses.insert(attempt.clone(), address);
        }
        match gang::decide(&gang) {
            gang::Step::Continue(goal) => goals.push((attempt, goal)),
            gang::Step::End(ending) => steps.push(end(key, job, ending, now)),
        }
    }
    (steps, goals)
}

fn gather<'a>(
    state: &State,
    sightings: &'a BTreeMap<NodeId, Sighting>,
    now: Timestamp,
    job: &'a JobRecord,
    attempt: &AttemptId,
    known_address: Option<&GangAddress>,
) -> Gang<'a> {
    let member = |node: &'a NodeId| {
        let record = state.nodes.get(node);
        let busy = record.is_some_and(
            |record| matches!(record.state(), NodeState::Running { attempt: busy_with, .. } if busy_with == attempt),
        );
        let sighting = sightings.get(node);
        Member {
            node,
            lost: !busy,
            gone: record.is_none(),
            connected: sighting.is_some_and(Sighting::is_there),
            report: sighting.and_then(|s| s.observed.task.as_ref()).filter(|task| task.attempt == *attempt),
        }
    };
    let limit = job.spec.constraints.max_wall_clock_time;
    let started = job.state().started().unwrap_or(now);
    Gang {
        members: job.state().nodes().iter().map(member).collect(),
        terminating: matches!(job.state(), JobState::Terminating { .. }),
        evicted: job.eviction().map(|evicted| evicted.grace_ms),
        overdue: (now.since(started) > limit.0).then(|| limit.to_string()),
        known_address: known_address.cloned(),
        n_ranks: job.spec.rank_count(),
        has_servers: job.spec.parameter_server_count() > 0,
    }
}

fn end(key: &JobKey, job: &JobRecord, ending: Ending, now: Timestamp) -> Step {
    match ending {
        Ending::Succeeded => Step::EndAttempt(key.clone(), JobEvent::Succeeded { at: now }),
        Ending::Failed { exit_code, errors } => {
            Step::EndAttempt(key.clone(), JobEvent::Failed { exit_code, errors, at: now })
        }
        Ending::Interrupted => {
            let message = "The job was stopped before it was done, and runs again from its beginning";
            let told = job.eviction().map(|evicted| evicted.reason.clone());
            Step::Requeue(key.clone(), told.unwrap_or_else(|| BatchAiError::new("JobInterrupted", message)))
        }
        Ending::NodeLost { node } => {
            // Nodes that are taken back go a little early or one after the other: no loss to a job that had to give them up.
            if let Some(evicted) = job.eviction().filter(|evicted| evicted.reason.code == NODE_PREEMPTED) {
                return Step::Requeue(key.clone(), evicted.reason.clone());
            }
            let lost = |attempt: &&LostAttempt| attempt.reason.code == NODE_LOST;
            let before: Vec<&LostAttempt> = job.lost_attempts.iter().filter(lost).collect();
            if before.len() + 1 < MAX_LOST_ATTEMPTS {
                let message = match job.cause_of_loss(&node) {
                    Some(cause) => format!("{cause}; the job ran on it"),
                    None => format!("Node {node} was lost while the job ran on it"),
                };
                return Step::Requeue(key.clone(), BatchAiError::new(NODE_LOST, message).with("Node", node.as_str()));
            }
            let error = lost_too_often(job, &before, &node, now);
            Step::EndAttempt(key.clone(), JobEvent::Failed { exit_code: None, errors: vec![error], at: now })
        }
    }
}

/// Names every loss: which attempt, which node, when.
fn lost_too_often(job: &JobRecord, before: &[&LostAttempt], last: &NodeId, now: Timestamp) -> BatchAiError {
    let node_of = |error: &BatchAiError| {
        let node = error.details.iter().find(|detail| detail.name == "Node");
        node.map_or_else(|| "a node".to_owned(), |detail| detail.value.clone())
    };
    let told = |attempt: u32, node: &str, at: Timestamp| format!("attempt {attempt} {node} at {}", at.whole_seconds());
    let earlier = before.iter().map(|lost| told(lost.number, &node_of(&lost.reason), lost.ended));
    let losses: Vec<String> = earlier.chain([told(job.attempts, last.as_str(), now)]).collect();
    let cause = job.cause_of_loss(last).map_or_else(String::new, |cause| format!(". The last: {cause}"));
    let message = format!(
        "The job lost a node in each of {} attempts and is not tried again: {}{cause}",
        losses.len(),
        losses.join(", ")
    );
    BatchAiError::new(NODE_LOST, message).with("Node", last.as_str())
}

const NODE_LOST: &str = "NodeLost";
