//! The two sides together, over streams of bytes that a test delivers as it likes.

mod joins;
mod random;
mod semantics;
mod sets;
mod simulated_job;
mod stalls;
mod steady_state;
