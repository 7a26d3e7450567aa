//! `corro submit` and `corro fetch` with a real server and real nodes: what a user sees, what is sent, and what is left after kills.

mod harness;

#[path = "submit/commands.rs"]
mod commands;
#[path = "submit/failures.rs"]
mod failures;
#[path = "submit/kills.rs"]
mod kills;
#[path = "submit/project.rs"]
mod project;
