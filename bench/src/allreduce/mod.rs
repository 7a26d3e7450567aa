//! Parts of the benchmark `allreduce`: cases, rank placement, our rank, the limits of the machine, tables and goals.
//!
//! Reading order: `cases` (the cases and the text protocol of ranks), `worker` (our rank, and the contract of every rank) on
//! top of `engine_apis` (the engine), `placement` and `hosts` (rank placement), `gang` (rank start), `copy` and `tcp` (machine
//! limits),
//! `table` and `goals`.

pub mod cases;
pub mod copy;
mod engine_apis;
pub mod gang;
pub mod goals;
pub mod hosts;
pub mod kernels;
pub mod options;

pub mod placement;
mod resnet;
pub mod table;
pub mod tcp;
pub mod worker;
