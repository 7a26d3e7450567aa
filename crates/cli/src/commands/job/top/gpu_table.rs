//! Table of the GPUs of `corro job top`: utilization, memory, power, temperature and ECC errors of each GPU that the job may use. Pure.

use corro_model::batchai::JobProcesses;
use corro_model::gpu::GpuReading;

use crate::output::units::format_bytes;

/// Lines of the table; none if the job has no GPUs.
pub fn render(processes: &JobProcesses) -> Vec<String> {
    let all = processes.nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| (node.node_id.as_str(), gpu)));
    let mut rows = all.map(|(node, gpu)| gpu_line(node, gpu)).peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    [String::new(), header()].into_iter().chain(rows).collect()
}

fn header() -> String {
    let titles = ["GPU", "NODE", "GPU %", "MEMORY", "OF", "POWER", "TEMP", "ECC", "NAME"];
    let [gpu, node, utilization, used, total, power, temperature, ecc, name] = titles;
    format!("{gpu:<6}{node:<38}{utilization:>7}{used:>11}{total:>11}{power:>9}{temperature:>7}{ecc:>6}  {name}")
}

fn gpu_line(node: &str, gpu: &GpuReading) -> String {
    let utilization = text(gpu.utilization_percent, |percent| percent.to_string());
    let (used, total) = (text(gpu.memory_used_bytes, format_bytes), text(gpu.memory_total_bytes, format_bytes));
    let power = text(gpu.power_watts, |watts| format!("{watts:.0} W"));
    let temperature = text(gpu.temperature_celsius, |degrees| format!("{degrees} C"));
    let ecc = text(gpu.ecc_errors, |errors| errors.to_string());
    let number = gpu.gpu;
    let name = format!("{}{}", gpu.name, state(gpu));
    format!("{number:<6}{node:<38}{utilization:>7}{used:>11}{total:>11}{power:>9}{temperature:>7}{ecc:>6}  {name}")
}

fn text<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// State of a GPU that cannot be read.
fn state(gpu: &GpuReading) -> String {
    match (gpu.lost, gpu.errors.first()) {
        (true, Some(error)) => format!(": LOST (Xid {})", error.xid),
        (true, None) => ": LOST".to_owned(),
        (false, _) if gpu.silent => ": its driver does not answer".to_owned(),
        (false, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_gpu_has_a_line() {
        let full = json!({"gpu": 0, "name": "NVIDIA H200", "utilizationPercent": 97, "memoryUsedBytes": 12_u64 << 30,
            "memoryTotalBytes": 140_u64 << 30, "powerWatts": 612.34, "temperatureCelsius": 61, "eccErrors": 0});
        let no_power = json!({"gpu": 1, "name": "NVIDIA T4", "utilizationPercent": 0, "memoryUsedBytes": 1 << 20,
            "memoryTotalBytes": 16_u64 << 30, "temperatureCelsius": 35});
        let lost = json!({"gpu": 2, "name": "NVIDIA H200", "lost": true, "memoryTotalBytes": 140_u64 << 30,
            "errors": [{"xid": 79, "busId": "0000:3b:00", "text": "GPU has fallen off the bus."}]});
        let silent = json!({"gpu": 3, "name": "NVIDIA H200", "silent": true});
        let node = |i: u32, gpus: serde_json::Value| json!({"nodeId": format!("tvm-257509324_{i}-20180718t174802z-p"), "answered": true, "processes": [], "gpus": gpus});
        let nodes = json!([node(1, json!([full, no_power])), node(2, json!([lost, silent]))]);
        let processes: JobProcesses = serde_json::from_value(json!({"attempt": 1, "nodes": nodes})).expect("a literal");
        assert_eq!(
            render(&processes),
            [
                "",
                "GPU   NODE                                    GPU %     MEMORY         OF    POWER   TEMP   ECC  NAME",
                "0     tvm-257509324_1-20180718t174802z-p         97   12.0 GiB  140.0 GiB    612 W   61 C     0  NVIDIA H200",
                "1     tvm-257509324_1-20180718t174802z-p          0    1.0 MiB   16.0 GiB        -   35 C     -  NVIDIA T4",
                "2     tvm-257509324_2-20180718t174802z-p          -          -  140.0 GiB        -      -     -  NVIDIA H200: LOST (Xid 79)",
                "3     tvm-257509324_2-20180718t174802z-p          -          -          -        -      -     -  NVIDIA H200: its driver does not answer",
            ]
        );
        assert_eq!(render(&JobProcesses { nodes: Vec::new(), ..processes }), Vec::<String>::new());
    }
}
