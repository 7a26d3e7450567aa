//! State that all handles of one root share (`common`): locks for changes of properties (`inode_locks`) and cached
//! measurements of disk usage (`usage`). In memory only.

pub(crate) mod common;
pub(crate) mod inode_locks;
pub(crate) mod usage;
