//! Collective operations on the memory of GPUs. Work is submitted to a stream and ordered by events. A thread waits for a device only where data
//! passes through host memory, and where ranks share a GPU: there [`ipc`] says why.
//!
//! [`driver`] is what is needed of a driver, [`cuda`] implements it for NVIDIA and `fake` for tests. [`context`] is a device with its streams
//! and pools. [`select`] chooses a transport: [`ipc`] for ranks that share one GPU, [`nccl`] for ranks with a GPU each, [`host`] otherwise.
//! [`operation`] is what they execute; [`plan`] makes [`tasks`] for the kernel of it. `exports` lets ranks map each other's memory.

mod adasum;
pub mod context;
pub mod cuda;
pub mod driver;
pub mod error;
mod exports;
#[cfg(test)]
mod fake;
pub mod host;
pub mod ipc;
pub mod nccl;
pub mod operation;
pub mod plan;
pub mod select;
pub mod tasks;
#[cfg(test)]
mod tests;
