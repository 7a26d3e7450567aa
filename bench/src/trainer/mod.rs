//! Parts of the benchmark `trainer`: the turn protocol, start and CPU pinning of ranks, our rank, tables and goals.
//!
//! Reading order: `turn` (the request of one turn, and the contract of every rank), `worker` (our rank), `cpu_placement`
//! (processors per rank), `gang` (ranks that wait for their turns), `interleaved` (interleaved turns), `scaling` (from one rank
//! to two),
//! `table` and `goals`.

pub mod cpu_placement;
pub mod gang;
pub mod goals;
pub mod interleaved;
pub mod options;
pub mod scaling;
pub mod table;
pub mod turn;
pub mod worker;
