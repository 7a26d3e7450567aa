//! The command line as a tree of modules: the code of `corro batchai job file` is in `batchai/job/file.rs`. `main` hands over parsed arguments; a
//! command sends requests through its `Session`, prints one answer and returns, or fails with a `CliError`.
//!
//! Sibling files repeat the same shape: an enum of subcommands, their arguments, and `run`. What resources have in common
//! is in `resource_args` (arguments), `resource_ref` (which one) and `resource` (show, list, end); `retry` bears a server that is away.

pub mod account;
pub mod ad;
pub mod admin;
pub mod agent;
pub mod batchai;
pub mod cloud;
pub mod completion;
pub mod dashboard;
pub mod doctor;
pub mod events;
pub mod files;
pub mod group;
pub mod host;
pub mod job;
pub mod login;
pub mod logout;
pub mod mount;
pub mod node;
pub mod run;
pub mod server;
pub mod storage;
pub mod top;
pub mod train;
pub mod tutorial;
pub mod unmount;
pub mod up;
pub mod usage;
