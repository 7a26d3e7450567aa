//! A share of a Corro server as a directory of this machine: `corro mount`.
//! A FUSE file system over the file service. Never prints; its log goes through `tracing`.
//!
//! Reading order: `settings` (what is mounted, and how), `process` (the mount process) with its `watcher` and the machine's `table` of mounts; then
//! from the kernel to the server: `filesystem` (requests) on its `lane`, `volume` (the share), `open_file`; what they decide with: `inodes`, `cache`, `told`, `writeback` (all pure);
//! `remote` (what is asked of the server), `patience` (how often), `service` (the file service).

mod cache;
mod filesystem;
mod inodes;
mod lane;
#[cfg(test)]
mod memory;
mod open_file;
mod patience;
pub mod process;
mod remote;
mod service;
pub mod settings;
pub mod table;
mod told;
mod volume;
pub mod watcher;
mod writeback;

pub use process::MountError;
pub use settings::Settings;
