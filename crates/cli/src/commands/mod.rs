//! The commands, one file per group of the command line. `main` hands over parsed arguments; a command talks to the
//! server through its `Session`, prints one answer and returns, or fails with a `Failure`.
//!
//! Sibling files repeat the same shape: an enum of subcommands, their arguments, and `run`. What resources have in common
//! is in `names` (arguments), `target` (which one) and `resource` (show, list, end).

pub mod ad;
mod admin;
pub mod agent;
mod auto_storage;
pub mod batchai;
pub mod cloud;
pub mod cluster;
mod cluster_spec;
pub mod completion;
mod config_file;
pub mod dashboard;
pub mod doctor;
pub mod events;
pub mod experiment;
pub mod file_server;
pub mod files;
pub mod group;
pub mod host;
pub mod job;
pub mod job_desk;
mod job_exec;
pub mod job_file;
mod job_plot;
mod job_stream;
mod job_timeline;
mod job_top;
mod job_top_engines;
mod job_wait;
mod job_why;
pub mod login;
pub mod mount;
mod mounts;
mod names;
mod node;
pub mod nodes;
mod patience;
mod resource;
pub mod run;
pub mod server;
pub mod storage;
pub mod storage_account;
pub mod storage_batch;
pub mod storage_blob;
pub mod storage_blob_objects;
pub mod storage_container;
pub mod storage_copy;
pub mod storage_directory;
pub mod storage_file;
mod storage_login;
mod storage_objects;
mod storage_pattern;
mod storage_sas;
pub mod storage_share;
mod storage_transfer;
mod target;
pub mod top;
pub mod train;
pub mod tutorial;
pub mod up;
pub mod upkeep;
pub mod usage;
mod usages;
pub mod workspace;
