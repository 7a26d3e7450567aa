//! Progress of a training, for people (Keras progress lines) and for programs (JSON lines).
//!
//! [`keras`] formats lines as Keras 2 does, [`progress`] decides when to print them, [`metrics`] writes one JSON object
//! per epoch.

pub mod keras;
pub mod metrics;
pub mod progress;
