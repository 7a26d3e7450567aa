//! `corro mount`: a share of a Corro server as a directory of this machine. A FUSE file system over the file service.
//! Never prints; logs through `tracing`.
//!
//! Reading order: `settings`; `process` (the mount process) with `unmount_watchdog` and `mountinfo`; then from the
//! kernel to the server: `fuse_fs` (request handlers) with `thread_runtime`, `volume` (the share), `shared_state`, `open_file`; pure
//! parts: `inodes`, `attr_cache`, `kernel_attrs`, `readahead`, `writeback`; `remote` (the server's interface), `retry`,
//! `service` (the file service).

mod attr_cache;
#[cfg(test)]
mod fake_remote;
mod fuse_fs;
mod inodes;
mod kernel_attrs;
pub mod mountinfo;
mod open_file;
pub mod process;
mod readahead;
mod remote;
mod retry;
mod service;
pub mod settings;
mod shared_state;
mod thread_runtime;
pub mod unmount_watchdog;
mod volume;
mod writeback;

pub use process::MountError;
pub use settings::Settings;
