//! What a training tells of itself: reads lines of logs, `metrics.jsonl` and TensorBoard's event files, and keeps curves of
//! bounded size. Entered by the server and by nodes with bytes; it never opens a file, never reads a clock, and never fails on input.
//!
//! Reading order: [`lines`] (bytes become lines), [`text`] and [`object`] (a line becomes a [`Reading`]), [`stream`] (a reading
//! gets its place on an axis), [`events`] (TensorBoard),
//! [`curve`] and [`curves`] (places become curves that do not grow without end), [`answer`]
//! (what is told of them), [`record`] (what is written down and read again).

pub mod answer;
pub mod curve;
pub mod curves;
pub mod events;
pub mod lines;
pub mod numbers;
pub mod object;
pub mod record;
pub mod stream;
pub mod text;
pub mod words;

pub use curves::Curves;
pub use stream::Stream;

/// What one line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub rank: Option<u32>,
    pub epoch: Option<f64>,
    /// How many epochs the training has, if the line says so: `Epoch 3/20`.
    pub epochs: Option<f64>,
    pub step: Option<f64>,
    /// How many steps an epoch has, if the line tells.
    pub of: Option<f64>,
    /// Steps are samples.
    pub samples: bool,
    /// Milliseconds since 1970.
    pub time: Option<i64>,
    pub values: Vec<Value>,
    /// Written for us: nothing was guessed.
    pub exact: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub name: String,
    pub unit: Option<&'static str>,
    pub value: f64,
}

impl Value {
    pub fn plain(name: &str, value: f64) -> Value {
        Value { name: name.to_owned(), unit: words::unit_of(name), value }
    }
}
