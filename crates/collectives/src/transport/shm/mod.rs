//! Communication of the ranks of one host through shared memory. `handover` passes the memory file on, `segment` is its layout, `step_sync` the
//! synchronisation by step counters, `byte_ring` byte streams between two ranks, `cma` reads another process's memory (cross-memory attach), `device_area`
//! is where ranks describe tensors in the memory of a GPU.

pub mod byte_ring;
pub mod cma;
pub mod device_area;
pub mod handover;
pub mod segment;
pub mod step_sync;
