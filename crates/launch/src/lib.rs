//! Starts rank processes and ends them for certain. The node agent and `corro run` enter here; the engine inside the
//! ranks is met only through environment variables and the rendezvous server. Never knows a job, a share or a cluster.
//!
//! Reading order: `place` (who is which rank), `environment` (what a rank is told), `rendezvous` (where ranks find each
//! other), `guard` (the small parent every process gets), `process`, `warden`, `lease` and `exit` (start, stop, wait), `sweep` (the second
//! net) with `mountinfo`, `confinement` and `namespaces` (what a process is kept from), `reader`, `redact`, `lines` and `tail` (output), `gang` and `console` (all of it on one machine), `compat` (for old scripts).

pub mod compat;
pub mod confinement;
pub mod connection_set;
pub mod console;
pub mod environment;
pub mod exit;
pub mod gang;
pub mod guard;
mod lease;
pub mod lines;
pub mod mountinfo;
pub mod namespaces;
pub mod place;
pub mod process;
pub mod procfs;
pub mod reader;
pub mod redact;
pub mod rendezvous;
pub mod sweep;
pub mod tail;
mod warden;
