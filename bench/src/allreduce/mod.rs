//! Parts of the benchmark `allreduce`: cases, rank placement, our rank, the limits of the machine, tables and goals.
//!
//! Reading order: `cases` (the cases and the text protocol of ranks), `worker` (our rank, and the contract of every rank) on
//! top of `ours` (the engine), `place` and `hosts` (rank placement), `gang` (rank start), `copy` and `tcp` (machine limits),
//! `table` and `goals`.

pub mod cases;
pub mod copy;
pub mod gang;
pub mod goals;
pub mod hosts;
pub mod kernels;
pub mod options;
mod ours;
pub mod place;
mod resnet;
pub mod table;
pub mod tcp;
pub mod worker;
