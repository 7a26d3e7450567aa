//! State of a GPU at one time, as its node reads it from the driver. A value that the driver does not report is absent.
//! Sizes are bounded by [`bounded`], which the server applies to all that nodes send.

use serde::{Deserialize, Serialize};

use super::XidError;

/// GPUs of a node that are shown, at most.
pub const MAX_GPUS: usize = 16;
/// Errors of a GPU that are shown, at most.
const MAX_ERRORS: usize = 4;
const MAX_NAME_CHARS: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuReading {
    /// Number on its machine, in the order of the PCI bus as in `nvidia-smi`.
    pub gpu: u32,
    pub name: String,
    /// PCI address: `00000000:3B:00.0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bus_id: String,
    /// Share of the last sampling period in which a kernel ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_errors: Option<u64>,
    /// It was there before, and the driver no longer finds it, or cannot read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// The driver did not answer in time, so the values are missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Errors in the kernel's log about a lost GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<XidError>,
}

/// What is kept of a reading in the history of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoint {
    pub gpu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
}

impl GpuReading {
    pub fn point(&self) -> GpuPoint {
        GpuPoint {
            gpu: self.gpu,
            utilization_percent: self.utilization_percent.map(f64::from),
            memory_bytes: self.memory_used_bytes,
            power_watts: self.power_watts,
            temperature_celsius: self.temperature_celsius.map(f64::from),
        }
    }

    /// The GPU in a sentence: `GPU 0 (NVIDIA H200)`.
    pub fn describe(&self) -> String {
        match self.name.is_empty() {
            true => format!("GPU {}", self.gpu),
            false => format!("GPU {} ({})", self.gpu, self.name),
        }
    }
}

/// The mean of the values of each GPU; a value that no point has stays absent.
pub fn average<'a>(points: impl Iterator<Item = &'a GpuPoint> + Clone) -> Vec<GpuPoint> {
    let mut numbers: Vec<u32> = points.clone().map(|point| point.gpu).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let of_gpu = |gpu: u32| {
        let own = points.clone().filter(move |point| point.gpu == gpu);
        GpuPoint {
            gpu,
            utilization_percent: mean(own.clone().filter_map(|point| point.utilization_percent).collect()),
            memory_bytes: mean(own.clone().filter_map(|point| Some(point.memory_bytes? as f64)).collect())
                .map(|bytes| bytes as u64),
            power_watts: mean(own.clone().filter_map(|point| point.power_watts).collect()),
            temperature_celsius: mean(own.filter_map(|point| point.temperature_celsius).collect()),
        }
    };
    numbers.into_iter().map(of_gpu).collect()
}

/// The first readings, with texts of bounded length and without control characters.
pub fn bounded(readings: Vec<GpuReading>) -> Vec<GpuReading> {
    let readings = readings.into_iter().take(MAX_GPUS).map(|mut reading| {
        reading.name = short_text(&reading.name);
        reading.bus_id = short_text(&reading.bus_id);
        reading.errors = bounded_errors(reading.errors);
        reading
    });
    readings.collect()
}

/// The first errors, with texts of bounded length and without control characters.
pub fn bounded_errors(errors: Vec<XidError>) -> Vec<XidError> {
    errors.into_iter().take(MAX_ERRORS).map(XidError::bounded).collect()
}

pub(super) fn short_text(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostReport;
    use crate::node::{RankExit, TaskStats};

    #[test]
    fn absent_values_are_omitted_and_missing_ones_are_absent() {
        let reading = GpuReading { gpu: 1, name: "NVIDIA T4".into(), ecc_errors: Some(0), ..GpuReading::default() };
        let text = serde_json::to_string(&reading).expect("plain data");
        assert_eq!(text, r#"{"gpu":1,"name":"NVIDIA T4","eccErrors":0}"#);
        assert_eq!(serde_json::from_str::<GpuReading>(&text).expect("the same"), reading);
        let newer = r#"{"gpu":2,"name":"x","fanPercent":30}"#;
        assert_eq!(serde_json::from_str::<GpuReading>(newer).expect("of a later version").gpu, 2);
    }

    /// Agents and servers of the version before do not know GPUs.
    #[test]
    fn messages_without_gpus_are_those_of_the_version_before() {
        let stats = r#"{"attempt":{"job":"j","number":1},"processes":[]}"#;
        let parsed: TaskStats = serde_json::from_str(stats).expect("of an agent of the version before");
        assert_eq!(serde_json::to_string(&parsed).expect("plain data"), stats);
        let exit =
            r#"{"rank":0,"exit_code":1,"signal":null,"stopped":false,"at":"2018-06-07T21:16:21Z","stderr_tail":""}"#;
        let parsed: RankExit = serde_json::from_str(exit).expect("of an agent of the version before");
        let sent = serde_json::to_string(&parsed).expect("plain data");
        assert!(parsed.gpu_errors.is_empty() && !sent.contains("gpu"), "{sent}");
        let report = r#"{"inventory":{"cores":1},"living":[]}"#;
        let parsed: HostReport = serde_json::from_str(report).expect("of a host of the version before");
        assert!(!serde_json::to_string(&parsed).expect("plain data").contains("\"gpus\":[{"));
    }

    #[test]
    fn readings_of_nodes_are_bounded() {
        let error = XidError { xid: 79, bus_id: "0".repeat(900), gpu: None, text: "x\n".repeat(900) };
        let many = GpuReading { name: "\u{1b}[31m".repeat(99), errors: vec![error; 99], ..GpuReading::default() };
        let bounded = bounded(vec![many; 99]);
        assert_eq!((bounded.len(), bounded[0].errors.len()), (MAX_GPUS, MAX_ERRORS));
        assert!(bounded[0].name.starts_with("[31m[31m") && bounded[0].name.len() <= MAX_NAME_CHARS);
        assert!(serde_json::to_string(&bounded).expect("plain data").len() < MAX_GPUS * 2_000);
    }

    #[test]
    fn averages_are_of_each_gpu() {
        let point = |gpu, utilization_percent: Option<f64>, memory_bytes| GpuPoint {
            gpu,
            utilization_percent,
            memory_bytes,
            ..GpuPoint::default()
        };
        let points = [
            point(1, Some(10.0), Some(5)),
            point(0, None, Some(100)),
            point(1, Some(30.0), Some(6)),
            point(1, None, None),
        ];
        let expected = [point(0, None, Some(100)), point(1, Some(20.0), Some(5))];
        assert_eq!(average(points.iter()), expected);
    }
}
