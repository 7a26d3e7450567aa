//! Linux facilities that the standard library lacks and several crates need: atomic replacement of files ([`atomic_file`]),
//! the process table ([`procfs`]), mount tables ([`mountinfo`]); also the text of an error with its causes
//! ([`error_chain`]) and a stable hash ([`fnv`]). Knows nothing of Corro.

pub mod atomic_file;
pub mod error_chain;
pub mod fnv;
pub mod mountinfo;
pub mod procfs;
