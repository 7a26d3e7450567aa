//! Parts of the benchmarks `optimizer` and `keras`: training steps of Python programs, ours and the peers', in turns.
//!
//! Reading order: `interleaved` (interleaved rounds), `rounds` (results per round), `goals`, `options`, `package` (our wheel,
//! built and unpacked). The programs are in `peers/`; `trainer::gang` starts the ranks.
//!
//! The contract of every program: read `REQUEST… STEPS`, train that many whole steps, answer `took SECONDS`, or `cannot
//! REASON`. One-time initialisation happens before the clock starts. Between turns a rank waits and computes nothing.

pub mod goals;
pub mod interleaved;
pub mod options;
pub mod package;
pub mod rounds;
