//! Starts rank processes and ends them reliably. Used by the node agent and `corro run`. The interface to the engine in the
//! ranks is environment variables and the rendezvous server. Knows no jobs, shares or clusters.
//!
//! Reading order: `rank_assignment` and `environment` (rank numbers and variables), `rendezvous` (server where ranks find each
//! other), `guard` with `fork_server` and `supervisor_deadline` (the parent of every process), `process`, `stopper` and `exit` (start, stop, wait),
//! `kill_tagged` (cleanup after a guard was killed) with `mount_visibility`, `confinement` and `namespaces` (isolation), `output_reader`, `redact`,
//! `lines`, `line_prefix` and `tail` (output), `gang` and `console` (a whole gang on one machine), `elastic_gang` (one that
//! grows and shrinks), `compat` (layers for old scripts).

pub mod compat;
pub mod confinement;
pub mod connection_set;
pub mod console;
pub mod elastic_gang;
pub mod environment;
pub mod exit;
mod fork_server;
pub mod gang;
pub mod guard;
pub mod kill_tagged;
pub mod line_prefix;
pub mod lines;
pub mod mount_visibility;
pub mod namespaces;
pub mod output_reader;
pub mod process;
pub mod process_spec;
pub mod rank_assignment;
pub mod redact;
pub mod rendezvous;
mod socket_pair;
pub mod stopper;
mod supervisor_deadline;
pub mod tail;
