//! Decides which processes are members of an elastic training, as Horovod's elastic driver does: starts, generations, removals,
//! exclusion of hosts, limits. Pure: no I/O, no clock (`now` is an argument), randomness from a seed.
//!
//! A *process* is one started program (numbered from 1, a number is never reused). A *generation* is one world of connected
//! ranks (numbered from 1). Invariants: never two generations at once, never fewer members than the minimum, never the same
//! process twice in a generation; survivors keep their order, so rank 0 is a survivor whenever there is one.
//!
//! Reading order: `settings` and `action` (input and output), `driver` (events, then `settle`), `hosts` (slots, exclusion), `ranks` (rank
//! numbers), `discovery` and `place` (texts on the wire).

mod action;
mod discovery;
mod driver;
mod hosts;
mod place;
mod ranks;
mod settings;

pub use action::{Action, Change, Generation, Member, Outcome, ProcessId};
pub use discovery::{DiscoveryError, parse_hosts};
pub use driver::{Driver, Resumed};
pub use place::{ADDED, DISMISSED, REMOVED, place_text};
pub use settings::{Host, OnFailure, Settings};
