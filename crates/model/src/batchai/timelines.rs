//! A recorded timeline of a running job: what every rank's engine did in some seconds, in Horovod's words. The answer is a Chrome trace
//! (a process for each rank, a thread for each tensor) that says besides how the recording stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{NodeId, Timestamp};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineParameters {
    /// How long to record.
    #[serde(default = "TimelineParameters::usual_seconds")]
    pub seconds: f64,
}

impl TimelineParameters {
    pub const MOST_SECONDS: f64 = 60.0;

    fn usual_seconds() -> f64 {
        5.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TimelineState {
    Recording,
    Done,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobTimeline {
    pub state: TimelineState,
    pub started: Timestamp,
    pub seconds: f64,
    /// Which try of the job, counted from 1.
    pub attempt: u32,
    /// Of how many ranks there is anything.
    pub ranks: usize,
    /// Events that are not there, because there were more than a recording holds.
    pub dropped: u64,
    /// Nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<NodeId>,
    pub trace_events: Vec<TraceEvent>,
}

/// As `chrome://tracing` and Perfetto read it; times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub name: String,
    /// `X` for a span, `M` for a name.
    pub ph: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dur: Option<u64>,
    /// The rank.
    pub pid: usize,
    /// The tensor.
    pub tid: usize,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Value>,
}
