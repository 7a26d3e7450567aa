//! Decides node events from observations: ready, broken, lost after silence, preempted, removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corro_model::NodeId;
use corro_model::batchai::BatchAiError;
use corro_model::node::TaskPhase;
use corro_model::state::{JobState, NodeEvent, NodeState};
use corro_store::{NodeRecord, State, Timeline};

use super::ReconcileConfig;
use super::pass_input::PassInput;
use super::steps::Step;
use crate::gateway::NodeObservation;
use crate::provider::Provider;

/// A node that was asked to retire is killed after this.
const RETIRE_DEADLINE: Duration = Duration::from_secs(15);

/// Time that a node has to stop a terminated job before it is declared lost. Agents give up and report well before.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

pub fn decide<'a>(nodes: impl Iterator<Item = (&'a NodeId, &'a Arc<NodeRecord>)>, input: &PassInput) -> Vec<Step> {
    let PassInput { state, observations, clock, uptime, gone, config, provider, .. } = *input;
    let mut steps = Vec::new();
    for (id, node) in nodes {
        let observation = observations.get(id).filter(|observation| observation.epoch == node.epoch);
        match node.state() {
            // `start_backoff` starts the agent again until it joins.
            NodeState::Allocating | NodeState::Unusable { .. } => {}
            NodeState::Leaving => {
                if gone.contains(id) {
                    steps.push(Step::RemoveNode(id.clone()));
                }
            }
            NodeState::Preparing | NodeState::Idle | NodeState::Running { .. } => {
                let grace = config.scheduling.preemption_grace;
                let preemption_cause = || provider.pending_reclaim(id, grace).filter(|_| node.preempted().is_none());
                if let Some(cause) = preemption_cause() {
                    // The job is evicted before the node disappears, so that this does not count as a node loss.
                    steps.push(Step::Preempt(id.clone(), config.scheduling.preemption(cause, clock.now())));
                    continue;
                }
                // A node not heard yet has had time to connect since it joined, or since this server started.
                let time_to_connect = uptime.min(clock.age(node.since()));
                let error = loss_error(id, node, observation, time_to_connect, config, provider);
                if let Some(error) = error.or_else(|| stop_timeout(state, id, node, observation, clock)) {
                    steps.push(Step::Node(id.clone(), NodeEvent::Broken { error, lost: true }));
                } else if let Some(observation) = observation {
                    // The address must be known before the node gets a job.
                    steps.extend(address_step(id, node, observation));
                    steps.extend(readiness_step(id, node.state(), observation));
                }
            }
        }
    }
    steps
}

/// Nodes to remove, each with whether its agent still has time to end by itself.
pub fn leaving_nodes<'a>(
    state: &'a State,
    observations: &'a BTreeMap<NodeId, NodeObservation>,
    clock: &'a Timeline,
) -> impl Iterator<Item = (&'a NodeId, bool)> {
    state.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Leaving).map(move |(id, node)| {
        let observation = observations.get(id).filter(|observation| observation.epoch == node.epoch);
        let retired = observation.is_none_or(|s| s.observed.retired || !s.connected);
        (id, !retired && clock.age(node.since()) < RETIRE_DEADLINE)
    })
}

/// Allocated nodes that no agent has joined as yet.
pub fn waiting_for_agent(state: &State) -> impl Iterator<Item = (&NodeId, &Arc<NodeRecord>)> {
    state.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating)
}

/// Records the address that a node reports, when it is new. Node addresses have no other source.
fn address_step(id: &NodeId, node: &NodeRecord, observation: &NodeObservation) -> Option<Step> {
    let address = observation.observed.address.as_ref().filter(|address| **address != node.address)?;
    Some(Step::SetAddress(id.clone(), address.clone()))
}

/// Marks a preparing node ready, or a node with a problem broken. A healthy node can come back from a restart with a problem; a
/// busy node reports it with its task first.
fn readiness_step(id: &NodeId, state: &NodeState, observation: &NodeObservation) -> Option<Step> {
    let observed = &observation.observed;
    if matches!(state, NodeState::Running { .. }) {
        return None;
    }
    if let Some(problem) = &observed.problem {
        let mut error = problem.clone();
        if !error.details.iter().any(|detail| detail.name == "Node") {
            error = error.with("Node", id.as_str());
        }
        return Some(Step::Node(id.clone(), NodeEvent::Broken { error, lost: false }));
    }
    (*state == NodeState::Preparing && observed.ready && observation.is_available())
        .then(|| Step::Node(id.clone(), NodeEvent::Ready))
}

/// Error for a node that is heard but does not stop a terminated or evicted job in time; it is given up so that the job ends.
fn stop_timeout(
    state: &State,
    id: &NodeId,
    node: &NodeRecord,
    observation: Option<&NodeObservation>,
    clock: &Timeline,
) -> Option<BatchAiError> {
    let NodeState::Running { job, attempt } = node.state() else { return None };
    let job = state.jobs.get(job)?;
    let report =
        observation.and_then(|observation| observation.observed.task.as_ref()).filter(|task| task.attempt == *attempt);
    let ended = report.is_some_and(|report| matches!(report.phase, TaskPhase::Ended { .. }));
    let (stop_requested, deadline, what) = match (job.state(), job.eviction()) {
        (JobState::Terminating { .. }, _) => (job.since(), STOP_DEADLINE, "a terminated job"),
        (_, Some(evicted)) => {
            let grace = Duration::from_millis(evicted.grace_ms);
            (evicted.at, grace + STOP_DEADLINE, "an evicted job")
        }
        _ => match job.elastic().and_then(|elastic| elastic.release_of(id)) {
            Some(release) => (release.by, STOP_DEADLINE, "its part of an elastic job"),
            None => return None,
        },
    };
    let message = || format!("Node {id} did not end {what} within {} s", deadline.as_secs());
    (!ended && clock.age(stop_requested) > deadline).then(|| BatchAiError::new("NodeDoesNotStop", message()))
}

/// Error for a node that is lost: its agent died, or it was silent for longer than the lease.
fn loss_error(
    id: &NodeId,
    node: &NodeRecord,
    observation: Option<&NodeObservation>,
    time_to_connect: Duration,
    config: &ReconcileConfig,
    provider: &dyn Provider,
) -> Option<BatchAiError> {
    let silent_for = observation.map_or(time_to_connect, |observation| observation.silent_for);
    let connected = observation.is_some_and(|observation| observation.connected);
    let is_dead = !connected && provider.is_alive(id) == Some(false);
    let at = if node.address.is_empty() { String::new() } else { format!(" at {}", node.address) };
    let message = if is_dead {
        let why = provider.provisioning_issue(id).map_or_else(String::new, |said| format!(": {said}"));
        format!("The agent of node {id}{at} ended unexpectedly{why}")
    } else if silent_for > config.lease {
        format!("No heartbeat from node {id}{at} for {} s", config.lease.as_secs_f32())
    } else {
        return None;
    };
    Some(BatchAiError::new("NodeLost", message))
}
