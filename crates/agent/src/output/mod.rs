//! Files that the agent writes for a job: logs of its processes, the execution log, training curves and performance counters.

pub mod counters;
pub mod curve_recorder;
pub mod execution_log;
pub mod log_file;
pub mod log_names;
pub mod log_sink;
pub mod output_dir;
pub mod progress_estimate;
