//! A recorded timeline of a running job: activity of every rank's engine over some seconds, with Horovod's event names.
//! The response is a Chrome trace (a process per rank, a thread per tensor) with the state of the recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{NodeId, Timestamp};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineParameters {
    /// Recording length in seconds.
    #[serde(default = "TimelineParameters::default_seconds")]
    pub seconds: f64,
}

impl TimelineParameters {
    pub const MAX_SECONDS: f64 = 60.0;

    fn default_seconds() -> f64 {
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
    /// Attempt of the job, counted from 1.
    pub attempt: u32,
    /// Number of ranks with any event.
    pub ranks: usize,
    /// Events that were dropped because the recording was full.
    pub dropped: u64,
    /// Nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<NodeId>,
    pub trace_events: Vec<TraceEvent>,
}

/// An event in the format of `chrome://tracing` and Perfetto; times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub name: String,
    /// `X` for a span, `M` for metadata (a name).
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
