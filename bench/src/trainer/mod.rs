//! What the benchmark `trainer` is made of: the turns that ranks take, how they are started and bound, our own rank, the tables and the
//! goals. Entered by `benchmarks/trainer.rs` and by `peers`. Never decides what is promised.
//!
//! Reading order: `turn` (what a rank is asked, and the contract that every rank keeps), `worker` (our rank), `place` (which
//! processors it gets), `gang` (ranks that wait for their turns), `contest` (who takes turns with whom), `scaling` (from one rank to two),
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
