//! Observability of the engine: timeline, recordings, status, step statistics, and autotuning. Nothing here ever blocks the engine.

pub mod autotune;
pub mod recorder;
pub mod shm_step_stats;
pub mod status;
pub mod timeline;
