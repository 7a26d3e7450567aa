//! Metrics of GPUs for Prometheus: the last measurement of each running node. A GPU without a value has no sample.

use corro_model::gpu::GpuReading;
use corro_model::state::NodeState;

use crate::app::App;
use crate::app::monitoring::prometheus_text::{Family, Kind};

/// A GPU of a running node.
struct JobGpu<'a> {
    cluster: &'a str,
    node: &'a str,
    /// Key of the job.
    job: &'a str,
    reading: GpuReading,
}

impl App {
    pub fn gpu_metrics(&self) -> Vec<Family> {
        let snapshot = self.snapshot();
        let mut gpus = Vec::new();
        for (id, node) in &snapshot.nodes {
            let NodeState::Running { job, attempt } = node.state() else { continue };
            let state = self.fleet.resource_history.gpus(id).filter(|state| *state.attempt == *attempt);
            let (cluster, node, job) = (node.cluster.as_str(), id.as_str(), job.as_str());
            let readings = state.map_or_else(Vec::new, |state| state.readings).into_iter();
            gpus.extend(readings.map(|reading| JobGpu { cluster, node, job, reading }));
        }
        families(&gpus)
    }
}

/// Name, help and value of each metric.
type Metric = (&'static str, &'static str, fn(&GpuReading) -> Option<f64>);

const METRICS: [Metric; 7] = [
    ("corro_gpu_up", "Whether the driver can read the GPU.", |gpu| Some(f64::from(u8::from(!gpu.lost && !gpu.silent)))),
    ("corro_gpu_utilization_ratio", "Share of the time in which a kernel ran.", |gpu| {
        gpu.utilization_percent.map(|percent| f64::from(percent) / 100.0)
    }),
    ("corro_gpu_memory_used_bytes", "Used memory of the GPU.", |gpu| gpu.memory_used_bytes.map(|bytes| bytes as f64)),
    ("corro_gpu_memory_bytes", "Memory of the GPU.", |gpu| gpu.memory_total_bytes.map(|bytes| bytes as f64)),
    ("corro_gpu_power_watts", "Power of the GPU.", |gpu| gpu.power_watts),
    ("corro_gpu_temperature_celsius", "Temperature of the GPU.", |gpu| gpu.temperature_celsius.map(f64::from)),
    ("corro_gpu_ecc_errors", "Uncorrected ECC errors since the driver was loaded.", |gpu| {
        gpu.ecc_errors.map(|errors| errors as f64)
    }),
];

/// Metrics of these GPUs; none if there is none. Pure.
fn families(gpus: &[JobGpu<'_>]) -> Vec<Family> {
    let family = |(name, help, value): Metric| {
        let mut family = Family::new(name, Kind::Gauge, help);
        for JobGpu { cluster, node, job, reading } in gpus {
            if let Some(value) = value(reading) {
                let number = reading.gpu.to_string();
                let labels = [("cluster", *cluster), ("node", *node), ("gpu", number.as_str()), ("job", *job)];
                family.add(&labels, value);
            }
        }
        family
    };
    METRICS.map(family).into_iter().filter(|family| !family.samples.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::monitoring::prometheus_text::render;

    #[test]
    fn every_known_value_has_a_sample() {
        let gpu = |reading| JobGpu { cluster: "g/w/c", node: "n", job: "g/w/e/j", reading };
        let full = GpuReading {
            utilization_percent: Some(97),
            memory_used_bytes: Some(1 << 30),
            memory_total_bytes: Some(80 << 30),
            power_watts: Some(312.4),
            temperature_celsius: Some(61),
            ecc_errors: Some(2),
            ..GpuReading::default()
        };
        let no_power = GpuReading { gpu: 1, power_watts: None, ..full.clone() };
        let lost = GpuReading { gpu: 2, memory_total_bytes: Some(80 << 30), lost: true, ..GpuReading::default() };
        let text = render(&families(&[gpu(full), gpu(no_power), gpu(lost)]), false);
        let labels = |number: u32| format!("{{cluster=\"g/w/c\",node=\"n\",gpu=\"{number}\",job=\"g/w/e/j\"}}");
        for (name, gpu, value) in [
            ("up", 0, "1"),
            ("utilization_ratio", 0, "0.97"),
            ("memory_used_bytes", 0, "1073741824"),
            ("memory_bytes", 2, "85899345920"),
            ("power_watts", 0, "312.4"),
            ("temperature_celsius", 1, "61"),
            ("ecc_errors", 1, "2"),
            ("up", 2, "0"),
        ] {
            let line = format!("corro_gpu_{name}{} {value}", labels(gpu));
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains(&format!("corro_gpu_power_watts{}", labels(1))), "{text}");
        assert!(!text.contains(&format!("corro_gpu_utilization_ratio{}", labels(2))), "{text}");
        assert!(families(&[]).is_empty());
    }
}
