//! Operations on device memory through the named API, on a simulated driver ([`super::fake`]), with ranks as threads of this process.
//!
//! [`job`] runs ranks, [`elements`] has their tensors and the plain definition of a reduction. The transports: memory of one GPU that ranks
//! share, host memory, and a mixture of tensors in device and host memory.

mod adasum;
mod context_events;
mod elements;
mod exported_memory;
mod failures;
mod fusion;
mod generations;
mod job;
mod joins_and_sets;
mod mixed_memory;
mod ordering;
mod plans;
mod pools;
mod rank_failures;
#[path = "../../../tests/ranks/mod.rs"]
mod ranks;
mod redistribution;
mod reductions;
