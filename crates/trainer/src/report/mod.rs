//! How a training goes, for people (Keras' progress lines) and for programs (JSON lines). `train` enters with figures; nothing here
//! computes or decides anything about the training.
//!
//! [`keras`] writes figures as Keras 2 does, [`progress`] when and where, [`metrics`] keeps one JSON object for each epoch.

pub mod keras;
pub mod metrics;
pub mod progress;
