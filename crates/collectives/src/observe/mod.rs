//! What the engine lets others see of itself, and what it learns from looking. The engine enters here after it has acted; no
//! room in here ever makes it wait.

pub mod autotune;
pub mod recorder;
pub mod shm_step_stats;
pub mod status;
pub mod timeline;
