//! File operations that must survive crashes and hostile directory trees: crash-safe small files and access relative to directory descriptors.

pub mod dirfd;
pub mod json_file;
