//! Sentences about GPUs that a running job can no longer reach. Pure.

use crate::batchai::NodeProcesses;
use crate::gpu::GpuReading;
use crate::gpu::xid_table;

/// One sentence for each lost GPU of a job, with the error that the driver reported.
pub fn describe_lost_gpus(nodes: &[NodeProcesses]) -> Vec<String> {
    let of_node = |node: &NodeProcesses| {
        let lost = node.gpus.iter().filter(|gpu| gpu.lost);
        lost.map(|gpu| describe(node.node_id.as_str(), gpu)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

fn describe(node: &str, gpu: &GpuReading) -> String {
    let known = gpu.errors.iter().find_map(|error| xid_table::find(error.xid));
    let what = match (known, gpu.errors.first()) {
        (Some(meaning), _) => format!("{} (Xid {})", meaning.what, meaning.xid),
        (None, Some(error)) => format!("is no longer found by the driver, which reported Xid {}", error.xid),
        (None, None) => "is no longer found by the driver".to_owned(),
    };
    format!(
        "{} of node {node} {what}. Processes that use it fail or hang; the operator has to reset the GPU or reboot the machine.",
        gpu.describe()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_lost_gpus_are_described() {
        let error = |xid: u32| json!({"xid": xid, "busId": "0000:3b:00", "text": "x"});
        let gpus = json!([
            {"gpu": 0, "name": "NVIDIA H200", "utilizationPercent": 97},
            {"gpu": 1, "name": "NVIDIA H200", "lost": true, "errors": [error(79), error(45)]},
            {"gpu": 2, "name": "", "lost": true},
            {"gpu": 3, "name": "", "lost": true, "errors": [error(999)]}]);
        let node = json!({"nodeId": "tvm-1_1-20180718t174802z-p", "answered": true, "processes": [], "gpus": gpus});
        let nodes: Vec<NodeProcesses> = vec![serde_json::from_value(node).expect("a node")];
        let found = describe_lost_gpus(&nodes);
        let rest = "Processes that use it fail or hang; the operator has to reset the GPU or reboot the machine.";
        assert!(
            found[0].starts_with("GPU 1 (NVIDIA H200) of node tvm-1_1-20180718t174802z-p has fallen off the bus: ")
        );
        assert!(found[0].contains("(Xid 79)") && found[0].ends_with(rest), "{}", found[0]);
        let place = "of node tvm-1_1-20180718t174802z-p is no longer found by the driver";
        assert_eq!(
            found[1..],
            [format!("GPU 2 {place}. {rest}"), format!("GPU 3 {place}, which reported Xid 999. {rest}")]
        );
    }
}
