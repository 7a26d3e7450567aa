//! What a pod's status says of a node: it waits for something, its agent runs, or it has ended, and why, in words that name
//! the pod. Pure: reads what the API showed.

use corro_model::NodeId;
use k8s_openapi::api::core::v1::{ContainerState, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::pod::NODE_LABEL;

/// A pod as the API shows it, as far as anybody here looks: to read all that a pod can have is much code.
#[derive(Clone, Debug, Deserialize)]
pub struct Shown {
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

/// A pod of this server, as it was last shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub node: NodeId,
    pub fate: Fate,
    /// Somebody has asked for its end.
    pub deleting: bool,
    /// Why Kubernetes takes it away, where it says so.
    pub disruption: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its agent has not begun, for this reason if one is known.
    Waits(Option<String>),
    Runs,
    Ended(String),
}

impl Fate {
    /// One that waits may still become a node.
    pub fn is_alive(&self) -> bool {
        !matches!(self, Fate::Ended(_))
    }
}

/// The pod's name and what is seen of it; `None` when it is not a node's.
pub fn seen(pod: &Shown) -> Option<(String, Seen)> {
    let metadata = &pod.metadata;
    let name = metadata.name.clone()?;
    let node = NodeId::parse(metadata.labels.as_ref()?.get(NODE_LABEL)?)?;
    let status = pod.status.as_ref();
    let fate = fate(&name, status);
    let disruption = status.and_then(|status| condition(status, "DisruptionTarget", "True")).map(|it| {
        let cause = reason(it.reason.as_deref(), it.message.as_deref()).unwrap_or_else(|| "disrupted".to_owned());
        format!("pod {name} was taken away: {cause}")
    });
    let deleting = metadata.deletion_timestamp.is_some();
    Some((name, Seen { node, fate, deleting, disruption }))
}

fn fate(name: &str, status: Option<&Status>) -> Fate {
    let Some(status) = status else { return Fate::Waits(None) };
    match status.phase.as_deref() {
        Some("Succeeded") => Fate::Ended(format!("pod {name} has ended")),
        Some("Failed") => Fate::Ended(failure(name, status)),
        Some("Running") => Fate::Runs,
        // Also "Unknown": its machine is not heard, which is no end.
        Some("Unknown") => Fate::Runs,
        _ => Fate::Waits(hindrance(status).map(|why| format!("pod {name} waits: {why}"))),
    }
}

/// The pod's own reason (Evicted, Preempting, NodeShutdown), else how its container ended (OOMKilled, Error).
fn failure(name: &str, status: &Status) -> String {
    if let Some(why) = reason(status.reason.as_deref(), status.message.as_deref()) {
        return format!("pod {name} failed: {why}");
    }
    let ended = containers(status).find_map(|container| container.state.as_ref()?.terminated.as_ref());
    match ended {
        Some(ended) => {
            let why = reason(ended.reason.as_deref(), ended.message.as_deref().map(last_line));
            let how = match ended.signal {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit code {}", ended.exit_code),
            };
            format!("pod {name} failed: {} ({how})", why.unwrap_or_else(|| "its agent ended".to_owned()))
        }
        None => format!("pod {name} failed"),
    }
}

/// What a pod that has not begun waits for.
fn hindrance(status: &Status) -> Option<String> {
    let waiting = containers(status).find_map(|container| container.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.filter(|waiting| {
        // Where everything is as it should be.
        !matches!(waiting.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    });
    if let Some(waiting) = waiting {
        return reason(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let unplaced = condition(status, "PodScheduled", "False")?;
    reason(unplaced.reason.as_deref(), unplaced.message.as_deref())
}

fn containers(status: &Status) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

fn condition<'a>(status: &'a Status, type_: &str, is: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_ && condition.status == is)
}

fn reason(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    let full = |text: &&str| !text.trim().is_empty();
    match (reason.filter(full), message.filter(full)) {
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

    fn shown(status: Value) -> Seen {
        let pod = json!({
            "metadata": {"name": "p", "labels": {NODE_LABEL: "tvm-1_1-x-p"}}, "spec": {"containers": []},
            "status": status
        });
        seen(&serde_json::from_value(pod).expect("a pod")).expect("a node's").1
    }

    #[test]
    fn a_status_is_a_fate() {
        let terminated =
            |state: Value| json!({"phase": "Failed", "containerStatuses": [container(json!({"terminated": state}))]});
        let waits =
            |state: Value| json!({"phase": "Pending", "containerStatuses": [container(json!({"waiting": state}))]});
        let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."});
        let (waiting, ended) =
            (|text: &str| Fate::Waits(Some(text.to_owned())), |text: &str| Fate::Ended(text.to_owned()));
        for (status, expected) in [
            (json!({}), Fate::Waits(None)),
            (json!({"phase": "Pending"}), Fate::Waits(None)),
            (json!({"phase": "Running"}), Fate::Runs),
            (json!({"phase": "Unknown"}), Fate::Runs),
            (json!({"phase": "Succeeded"}), ended("pod p has ended")),
            (waits(json!({"reason": "ContainerCreating"})), Fate::Waits(None)),
            (
                waits(json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\""})),
                waiting("pod p waits: ImagePullBackOff: Back-off pulling image \"x\""),
            ),
            (
                json!({"phase": "Pending", "conditions": [unplaced]}),
                waiting("pod p waits: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
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
            assert_eq!(shown(status.clone()).fate, expected, "{status}");
        }
    }

    fn container(state: Value) -> Value {
        json!({"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn why_kubernetes_takes_a_pod_away_is_told() {
        let disrupted = json!({"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]});
        let seen = shown(disrupted);
        assert_eq!(seen.fate, Fate::Runs);
        let told = "pod p was taken away: EvictionByEvictionAPI: Eviction API: evicting";
        assert_eq!(seen.disruption.as_deref(), Some(told));
    }

    #[test]
    fn a_pod_of_somebody_else_is_none() {
        for labels in [json!({}), json!({NODE_LABEL: "../x"})] {
            let pod = serde_json::from_value(json!({"metadata": {"name": "p", "labels": labels}, "spec": {}}))
                .expect("a pod");
            assert_eq!(seen(&pod), None);
        }
    }
}
