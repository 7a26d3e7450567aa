//! Interprets the status of a pod: its agent is pending, running or ended, and why, in a text that names the pod. Pure.

use corro_model::NodeId;
use k8s_openapi::api::core::v1::{ContainerState, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::pod_spec::NODE_LABEL;

/// The fields of a pod that are used. `k8s-openapi`'s full type would generate much more parsing code.
#[derive(Clone, Debug, Deserialize)]
pub struct PodObject {
    pub metadata: ObjectMeta,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ContainerStatus {
    state: Option<ContainerState>,
}

/// State of a pod of this server, as the API last reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pub node: NodeId,
    pub phase: AgentPhase,
    /// Whether its deletion was requested, by anyone.
    pub is_deleting: bool,
    /// Kubernetes' reason for evicting it (condition `DisruptionTarget`).
    pub disruption: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentPhase {
    /// The agent has not started, with the reason if one is known.
    Pending(Option<String>),
    Running,
    /// With the reason.
    Ended(String),
}

impl AgentPhase {
    /// A pending pod counts as alive: it may still become a node.
    pub fn is_alive(&self) -> bool {
        !matches!(self, AgentPhase::Ended(_))
    }
}

/// Name and state of a pod; `None` if it is not a node's.
pub fn pod_state(pod: &PodObject) -> Option<(String, PodState)> {
    let metadata = &pod.metadata;
    let name = metadata.name.clone()?;
    let node = NodeId::parse(metadata.labels.as_ref()?.get(NODE_LABEL)?)?;
    let status = pod.status.as_ref();
    let phase = agent_phase(&name, status);
    let disruption = status.and_then(|status| condition(status, "DisruptionTarget", "True")).map(|condition| {
        let cause = join_reason(condition.reason.as_deref(), condition.message.as_deref())
            .unwrap_or_else(|| "disrupted".to_owned());
        format!("pod {name} was evicted: {cause}")
    });
    let is_deleting = metadata.deletion_timestamp.is_some();
    Some((name, PodState { node, phase, is_deleting, disruption }))
}

fn agent_phase(name: &str, status: Option<&Status>) -> AgentPhase {
    let Some(status) = status else { return AgentPhase::Pending(None) };
    match status.phase.as_deref() {
        Some("Succeeded") => AgentPhase::Ended(format!("pod {name} has ended")),
        Some("Failed") => AgentPhase::Ended(failure_reason(name, status)),
        Some("Running") => AgentPhase::Running,
        // The machine of the pod does not report to the API, which is no end of the pod.
        Some("Unknown") => AgentPhase::Running,
        _ => AgentPhase::Pending(pending_reason(status).map(|why| format!("pod {name} is pending: {why}"))),
    }
}

/// The pod's own reason (Evicted, Preempting, NodeShutdown), else that of its container (OOMKilled, Error).
fn failure_reason(name: &str, status: &Status) -> String {
    if let Some(why) = join_reason(status.reason.as_deref(), status.message.as_deref()) {
        return format!("pod {name} failed: {why}");
    }
    let ended = containers(status).find_map(|container| container.state.as_ref()?.terminated.as_ref());
    match ended {
        Some(ended) => {
            let why = join_reason(ended.reason.as_deref(), ended.message.as_deref().map(last_line));
            let how = match ended.signal {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit code {}", ended.exit_code),
            };
            format!("pod {name} failed: {} ({how})", why.unwrap_or_else(|| "its agent ended".to_owned()))
        }
        None => format!("pod {name} failed"),
    }
}

/// Reason why a pod has not started: that of its container, else that of the scheduler.
fn pending_reason(status: &Status) -> Option<String> {
    let waiting = containers(status).find_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.filter(|waiting| {
        // The normal steps of a start.
        !matches!(waiting.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    });
    if let Some(waiting) = waiting {
        return join_reason(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let unscheduled = condition(status, "PodScheduled", "False")?;
    join_reason(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
}

fn containers(status: &Status) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

fn condition<'a>(status: &'a Status, type_: &str, is: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_ && condition.status == is)
}

/// `reason: message`, or whichever of the two is not empty.
fn join_reason(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    let is_filled = |text: &&str| !text.trim().is_empty();
    match (reason.filter(is_filled), message.filter(is_filled)) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {}", message.trim())),
        (Some(text), None) | (None, Some(text)) => Some(text.trim().to_owned()),
        (None, None) => None,
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn state_of(status: Value) -> PodState {
        let pod = json!({
            "metadata": {"name": "p", "labels": {NODE_LABEL: "tvm-1_1-x-p"}}, "spec": {"containers": []},
            "status": status
        });
        pod_state(&serde_json::from_value(pod).expect("a pod")).expect("a node's").1
    }

    #[test]
    fn the_phase_follows_from_the_status() {
        let terminated =
            |state: Value| json!({"phase": "Failed", "containerStatuses": [container(json!({"terminated": state}))]});
        let waits =
            |state: Value| json!({"phase": "Pending", "containerStatuses": [container(json!({"waiting": state}))]});
        let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."});
        let (waiting, ended) =
            (|text: &str| AgentPhase::Pending(Some(text.to_owned())), |text: &str| AgentPhase::Ended(text.to_owned()));
        for (status, expected) in [
            (json!({}), AgentPhase::Pending(None)),
            (json!({"phase": "Pending"}), AgentPhase::Pending(None)),
            (json!({"phase": "Running"}), AgentPhase::Running),
            (json!({"phase": "Unknown"}), AgentPhase::Running),
            (json!({"phase": "Succeeded"}), ended("pod p has ended")),
            (waits(json!({"reason": "ContainerCreating"})), AgentPhase::Pending(None)),
            (
                waits(json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\""})),
                waiting("pod p is pending: ImagePullBackOff: Back-off pulling image \"x\""),
            ),
            (
                json!({"phase": "Pending", "conditions": [unplaced]}),
                waiting("pod p is pending: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
                ended("pod p failed: Evicted: The node was low on resource: memory."),
            ),
            (
                terminated(json!({"reason": "OOMKilled", "exitCode": 137})),
                ended("pod p failed: OOMKilled (exit code 137)"),
            ),
            (
                terminated(json!({"reason": "Error", "exitCode": 1, "message": "a\ncorro: no route\n"})),
                ended("pod p failed: Error: corro: no route (exit code 1)"),
            ),
            (json!({"phase": "Failed"}), ended("pod p failed")),
        ] {
            assert_eq!(state_of(status.clone()).phase, expected, "{status}");
        }
    }

    fn container(state: Value) -> Value {
        json!({"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn the_reason_of_an_eviction_is_read() {
        let disrupted = json!({"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]});
        let state = state_of(disrupted);
        assert_eq!(state.phase, AgentPhase::Running);
        let reason = "pod p was evicted: EvictionByEvictionAPI: Eviction API: evicting";
        assert_eq!(state.disruption.as_deref(), Some(reason));
    }

    #[test]
    fn pods_without_a_valid_node_label_are_ignored() {
        for labels in [json!({}), json!({NODE_LABEL: "../x"})] {
            let pod = serde_json::from_value(json!({"metadata": {"name": "p", "labels": labels}, "spec": {}}))
                .expect("a pod");
            assert_eq!(pod_state(&pod), None);
        }
    }
}
