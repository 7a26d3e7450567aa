//! Parts of the benchmark `trainer`: the turn protocol, start and CPU pinning of ranks, our rank, tables and goals.
//!
//! Reading order: `turn` (the request of one turn, and the contract of every rank), `worker` (our rank), `place` (processors
//! per rank), `gang` (ranks that wait for their turns), `contest` (interleaved turns), `scaling` (from one rank to two),
//! `table` and `goals`.

pub mod contest;
pub mod gang;
pub mod goals;
pub mod options;
pub mod place;
pub mod scaling;
pub mod table;
pub mod turn;
pub mod worker;
