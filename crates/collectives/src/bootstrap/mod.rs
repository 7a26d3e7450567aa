//! Startup of a rank: [`launch_env`] reads its rank from the environment, [`rendezvous`] exchanges one opaque blob per rank with all others.
//! Opens no connections for tensors, and shares no code with launchers: the interface is environment variables.

pub mod launch_env;
mod launchers;
pub mod rank_info;
pub mod rendezvous;
pub mod rendezvous_method;
mod slurm_lists;
pub(crate) mod variables;

pub use variables::LaunchError;
