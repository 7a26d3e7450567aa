//! The node's storage: its directory tree, the temporary directory of its jobs, reuse of unchanged directories, and mounted volumes.

pub mod dir_reuse;
pub mod directories;
pub mod mounts;
pub mod python_cache;
pub mod tmp_dir;
