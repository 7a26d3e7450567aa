//! Live statistics of the running task's processes: process table, status of their collective engines, and timeline recordings.

pub mod engine_status;
pub mod process_stats;
pub mod timeline_recording;
