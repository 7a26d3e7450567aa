//! The commands, one file per group of the command line. `main` hands over parsed arguments; a command talks to the
//! server through its `Session`, prints one answer and returns, or fails with a `Failure`.
//!
//! Sibling files repeat the same shape: an enum of subcommands, their arguments, and `run`.

pub mod agent;
pub mod batchai;
pub mod cluster;
mod cluster_spec;
mod config_file;
pub mod doctor;
pub mod experiment;
pub mod group;
pub mod job;
pub mod job_file;
mod job_stream;
mod job_wait;
mod mounts;
mod patience;
pub mod run;
pub mod server;
pub mod storage;
pub mod storage_account;
pub mod storage_directory;
pub mod storage_file;
mod storage_login;
pub mod storage_share;
mod target;
pub mod tutorial;
pub mod up;
pub mod workspace;
