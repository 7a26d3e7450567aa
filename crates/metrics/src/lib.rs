//! What a training tells of itself: reads lines of logs, `metrics.jsonl` and TensorBoard's event files, and keeps curves of
//! bounded size. Entered by the server and by nodes with bytes; it never opens a file, never reads a clock, and never fails on input.
//!
//! ParsedLine order: [`lines`] (bytes become lines), [`log_line`] and [`object`] (a line becomes a [`ParsedLine`]), [`stream`] (a reading
//! gets its place on an axis), [`events`] (TensorBoard),
//! [`curve`] and [`curves`] (places become curves that do not grow without end), [`answer`]
//! (what is told of them), [`record`] (what is written down and read again).

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

/// What one line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedLine {
    pub rank: Option<u32>,
    pub epoch: Option<f64>,
    /// How many epochs the training has, if the line says so: `Epoch 3/20`.
    pub epoch_total: Option<f64>,
    pub step: Option<f64>,
    /// How many steps an epoch has, if the line tells.
    pub step_total: Option<f64>,
    /// Steps are samples.
    pub steps_are_samples: bool,
    /// Milliseconds since 1970.
    pub time: Option<i64>,
    pub values: Vec<Value>,
    /// Written for us: nothing was guessed.
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
