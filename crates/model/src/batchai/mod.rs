//! Bodies of the Batch AI routes, api-version 2018-05-01: one file per resource. A `Spec` is the user's request, a
//! `Status` the observed state; a response flattens both into `properties`. Absent values are omitted, never `null`.

mod annotations;
pub mod cluster;
pub mod common;
mod dependency;
pub mod engines;
pub mod experiment;
pub mod file;
pub mod file_server;
pub mod job;
pub mod login;
pub mod nodes;
pub mod overview;
pub mod provider;
pub mod sweep;
pub mod timelines;
pub mod toolkit;
pub mod usage;
pub mod volume;
pub mod waiting;
mod webhook;
mod wire;
pub mod workspace;

pub use annotations::*;
pub use cluster::*;
pub use common::*;
pub use dependency::JobReference;
pub use engines::{Collective, EngineStats, EngineTotals, StalledCollective};
pub use experiment::*;
pub use file::*;
pub use file_server::*;
pub use job::*;
pub use login::*;
pub use nodes::*;
pub use overview::*;
pub use provider::*;
pub use sweep::*;
pub use timelines::*;
pub use toolkit::*;
pub use usage::*;
pub use volume::*;
pub use waiting::*;
pub use webhook::*;
pub use workspace::*;
