//! `corro up --detach`, `corro status` and `corro stop` with real processes: starts, several starts at once, failed and interrupted starts, kills, and
//! the server that `corro submit` starts.

mod harness;

#[path = "background/site.rs"]
mod site;
#[path = "background/starts.rs"]
mod starts;
#[path = "background/stops.rs"]
mod stops;
#[path = "background/submit.rs"]
mod submit;
