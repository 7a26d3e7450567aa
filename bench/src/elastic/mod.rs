//! Parts of the benchmark `elastic`: our rank (`worker`), a running gang of ranks, and the events that ranks report (`events`).

pub mod events;
pub mod gang;
pub mod worker;
