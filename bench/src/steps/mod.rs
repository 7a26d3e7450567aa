//! What the benchmarks `optimizer` and `keras` are made of: training steps of Python programs, ours and others', in turns. Entered by those two
//! and, for the package itself, by `wheel`. Never decides what is promised.
//!
//! Reading order: `contest` (who takes turns with whom), `rounds` (what came of it, round by round), `goals`, `options`, `package` (our
//! wheel, built and unpacked). The programs are in `peers/`; ranks are started by `trainer::gang`.
//!
//! The contract of every program: read `WORDS… STEPS`, train so many whole steps, answer `took SECONDS`, or `cannot WHY`. What is needed for
//! the first time is made before the seconds are counted. Between turns a rank waits and computes nothing.

pub mod contest;
pub mod goals;
pub mod options;
pub mod package;
pub mod rounds;
