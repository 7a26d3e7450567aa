//! A share of a Corro server as a directory of this machine: `corro mount`.
//! A FUSE file system over the file service. Never prints; its log goes through `tracing`.
//!
//! Reading order: `settings` (what is mounted, and how), `process` (the mount process) with its `watcher` and the machine's `table` of mounts; then
//! from the kernel to the server: `filesystem` (requests) on its `lane`, `volume` (the share), `open_file`; what they decide with: `inodes`, `cache`, `told`, `writeback` (all pure);
//! `remote` (what is asked of the server), `patience` (how often), `service` (the file service).

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
mod thread_runtime;
pub mod unmount_watchdog;
mod volume;
mod writeback;

pub use process::MountError;
pub use settings::Settings;
