//! What a cluster's nodes do, in words. Pure.

use corro_model::batchai::{Cluster, ScaleSettings};
use corro_model::vm_size;

use crate::output::units::format_count;

/// `3 nodes ready, 1 busy`.
pub fn nodes_text(cluster: &Cluster) -> String {
    let counts = &cluster.properties.status.node_state_counts;
    let states = [
        (counts.idle_node_count, "ready"),
        (counts.running_node_count, "busy"),
        (counts.preparing_node_count, "starting"),
        (counts.leaving_node_count, "leaving"),
        (counts.unusable_node_count, "unusable"),
    ];
    let missing = wanted_nodes(cluster).map_or(0, |wanted| wanted - counts.total());
    let states = states.into_iter().chain([(missing, "requested")]).filter(|(n, _)| *n > 0);
    let texts: Vec<String> = states
        .enumerate()
        .map(|(idx, (n, word))| match idx {
            0 => format!("{} {word}", format_count(n.into(), "node")),
            _ => format!("{n} {word}"),
        })
        .collect();
    if texts.is_empty() { "no nodes".to_owned() } else { texts.join(", ") }
}

/// The number of nodes that a cluster of fixed size is to have.
fn wanted_nodes(cluster: &Cluster) -> Option<i32> {
    Some(cluster.properties.spec.scale_settings.manual.as_ref()?.target_node_count)
}

/// `4 nodes` or `0 to 4 nodes, as jobs need them`.
pub fn scaling_text(settings: &ScaleSettings) -> String {
    match (&settings.manual, &settings.auto_scale) {
        (_, Some(scale)) => {
            format!(
                "{} to {} as jobs need them",
                scale.minimum_node_count,
                format_count(scale.maximum_node_count.into(), "node")
            )
        }
        (Some(manual), None) => format_count(manual.target_node_count.into(), "node"),
        (None, None) => "0 nodes".to_owned(),
    }
}

/// The name of a VM size, with its resources if it is known: `STANDARD_NC6 (6 cores, 56 GiB, 1 GPU)`.
pub fn vm_size_text(name: &str) -> String {
    let Some(size) = vm_size::find(name) else { return name.to_owned() };
    let gpus = if size.gpus > 0 { format!(", {}", format_count(size.gpus.into(), "GPU")) } else { String::new() };
    format!("{name} ({}, {} GiB{gpus})", format_count(size.cores.into(), "core"), size.memory_gib)
}

/// `Cluster nc6cluster: 4 nodes ready`.
pub fn summary(cluster: &Cluster) -> String {
    format!("Cluster {}: {}", cluster.name, nodes_text(cluster))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A cluster with nodes that are idle, running, preparing, leaving and unusable.
    pub fn cluster(scale: Value, counts: [i32; 5]) -> Cluster {
        let time = "2018-06-21T17:15:18Z";
        let [idle, running, preparing, leaving, unusable] = counts;
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/nc6cluster";
        let cluster = json!({"id": id, "name": "nc6cluster", "type": "t", "properties": {
            "provisioningState": "succeeded", "creationTime": time, "provisioningStateTransitionTime": time,
            "allocationState": "steady", "allocationStateTransitionTime": time, "currentNodeCount": counts.iter().sum::<i32>(),
            "nodeStateCounts": {"runningNodeCount": running, "idleNodeCount": idle, "preparingNodeCount": preparing,
                                "leavingNodeCount": leaving, "unusableNodeCount": unusable},
            "vmSize": "STANDARD_NC6", "userAccountSettings": {"adminUserName": "a"}, "scaleSettings": scale}});
        serde_json::from_value(cluster).expect("a cluster")
    }

    #[test]
    fn the_summary_counts_nodes_by_what_they_do() {
        let fixed = |n: i32| json!({"manual": {"targetNodeCount": n}});
        let follows = json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4, "initialNodeCount": 0}});
        let check = |scale: &Value, counts: [i32; 5], expected: &str| {
            assert_eq!(summary(&cluster(scale.clone(), counts)), format!("Cluster nc6cluster: {expected}"));
        };
        check(&fixed(4), [4, 0, 0, 0, 0], "4 nodes ready");
        check(&fixed(4), [3, 1, 0, 0, 0], "3 nodes ready, 1 busy");
        check(&fixed(4), [0, 1, 1, 0, 0], "1 node busy, 1 starting, 2 requested");
        check(&fixed(0), [0, 0, 0, 2, 1], "2 nodes leaving, 1 unusable");
        check(&fixed(0), [0, 0, 0, 0, 0], "no nodes");
        check(&follows, [0, 0, 0, 0, 0], "no nodes");
    }

    #[test]
    fn sizes_and_scaling_in_words() {
        let scaling = |scale: Value| scaling_text(&serde_json::from_value(scale).expect("settings"));
        assert_eq!(scaling(json!({"manual": {"targetNodeCount": 1}})), "1 node");
        let follows = json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4}});
        assert_eq!(scaling(follows), "0 to 4 nodes as jobs need them");
        assert_eq!(vm_size_text("STANDARD_NC6"), "STANDARD_NC6 (6 cores, 56 GiB, 1 GPU)");
        assert_eq!(vm_size_text("STANDARD_OWN"), "STANDARD_OWN");
    }
}
