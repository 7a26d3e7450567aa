//! How a process finds the others of its job. The engine and the communicator enter here at init: [`place`] reads from the
//! environment which rank this is, [`meet`] swaps one opaque blob per rank with all others. Never opens the connections
//! over which tensors travel, and never shares code with a launcher: the two meet in environment variables.

mod launchers;
pub mod meet;
pub mod place;
mod slurm;
mod variables;

pub use variables::LaunchError;
