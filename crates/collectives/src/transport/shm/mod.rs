//! Communication of the ranks of one host through shared memory. `handover` passes the memory file on, `segment` is its layout, `step_sync` the
//! synchronisation by step counters, `cma` the reading of another process's memory (cross-memory attach).

pub mod cma;
pub mod handover;
pub mod segment;
pub mod step_sync;
