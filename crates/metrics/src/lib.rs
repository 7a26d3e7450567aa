//! Extracts training metrics from job output: log lines, `metrics.jsonl` and TensorBoard event files become curves of
//! bounded size. Input is bytes; the crate never opens a file, never reads a clock and never fails on input.
//!
//! Reading order: [`line_splitter`] (bytes to lines), [`log_line`] and [`json_line`] (a line to a [`ParsedLine`]),
//! [`metric_stream`] (a parsed line to points on an axis), [`tfevents`] (TensorBoard), [`curve`] and [`curves`]
//! (bounded storage), [`query`] (what the API returns), [`curve_file`] (curves on disk).

pub mod curve;
pub mod curve_file;
pub mod curves;
pub mod json_line;
pub mod line_splitter;
pub mod log_line;
pub mod metric_names;
pub mod metric_stream;
pub mod number_scan;
pub mod query;
pub mod tfevents;

pub use curves::Curves;
pub use metric_stream::MetricStream;

/// Metrics and training position found in one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedLine {
    pub rank: Option<u32>,
    pub epoch: Option<f64>,
    /// Number of epochs of the whole training, from lines such as `Epoch 3/20`.
    pub epoch_total: Option<f64>,
    pub step: Option<f64>,
    /// Number of steps per epoch, if the line has it.
    pub step_total: Option<f64>,
    /// `step` counts samples, not batches.
    pub steps_are_samples: bool,
    /// Milliseconds since 1970.
    pub time: Option<i64>,
    pub values: Vec<Value>,
    /// The line was a `{"corro": …}` object, so nothing is guessed.
    pub explicit: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub name: String,
    pub unit: Option<&'static str>,
    pub value: f64,
}

impl Value {
    pub fn new(name: &str, value: f64) -> Value {
        Value { name: name.to_owned(), unit: metric_names::unit_for(name), value }
    }
}
