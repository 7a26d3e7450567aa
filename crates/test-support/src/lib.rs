//! Shared by the tests of all crates, a development dependency only: the record of what a run did not test ([`skip`]) and
//! a pseudorandom generator with a seed ([`rng`]).

pub mod rng;
pub mod skip;
