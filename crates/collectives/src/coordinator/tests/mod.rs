//! Tests of coordinator and workers together, over byte streams that the test delivers in any order.

mod generations;
mod joins;
mod random;
mod semantics;
mod sets;
mod simulated_job;
mod stalls;
mod steady_state;
