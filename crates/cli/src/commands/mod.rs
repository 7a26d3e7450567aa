//! The commands as a tree of modules: `corro batchai job file` is in `batchai/job/file.rs`. A command gets parsed arguments, sends requests through its
//! `Session`, prints one result, and returns or fails with a `CliError`.
//!
//! Sibling files have the same structure: an enum of subcommands, their arguments, and `run`.

pub mod account;
pub mod ad;
pub mod admin;
pub mod agent;
pub mod batchai;
pub mod cloud;
pub mod cluster;
pub mod completion;
pub mod configure;
pub mod dashboard;
pub mod docs;
pub mod doctor;
pub mod events;
pub mod fetch;
pub mod files;
pub mod group;
pub mod host;
pub mod init;
pub mod job;
pub mod login;
pub mod logout;
pub mod mount;
pub mod node;
pub mod notebook;
pub mod reference;
pub mod run;
pub mod schema;
pub mod server;
pub mod share;
pub mod status;
pub mod stop;
pub mod storage;
pub mod submit;
pub mod sweep;
pub mod tensorboard;
pub mod top;
pub mod train;
pub mod tutorial;
pub mod unmount;
pub mod up;
pub mod usage;
