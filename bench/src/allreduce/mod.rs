//! What the benchmark `allreduce` is made of: the cases, the places they run at, our own rank, the limits of the machine and the
//! tables. Entered by `benchmarks/allreduce.rs` and by `peers`. Never decides what is promised.
//!
//! Reading order: `cases` (what is measured, and the words and lines that ranks speak), `worker` (our rank, and the contract
//! that every rank keeps) over `ours` (the engine), `place` and `hosts` (where ranks run), `gang` (how they are started),
//! `copy` and `tcp` (the limits), `table` and `goals`.

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
