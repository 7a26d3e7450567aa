//! `corro sweep` with a real server and real nodes: what a user sees, which trials the server stops, and what is left after kills.

mod harness;

#[path = "sweeps/commands.rs"]
mod commands;
#[path = "sweeps/kills.rs"]
mod kills;
#[path = "submit/project.rs"]
#[allow(dead_code, reason = "the suite of submissions uses the rest")]
mod project;
#[path = "sweeps/trials.rs"]
mod trials;
