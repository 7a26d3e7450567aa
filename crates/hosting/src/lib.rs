//! Runs the Corro server inside the calling process and supplies its node providers: local agent processes, machines that join
//! by themselves, Slurm allocations and Kubernetes pods. Parses no command line of its own, but its option structs derive
//! `clap::Args`, so that commands can flatten them. Prints nothing: errors and outcomes go to the caller.
//!
//! Reading order: [`embedded_server`] (start and describe the server), [`data_dir`] and [`listen`] (what a start needs),
//! [`local_admin_login`] (how clients on this machine find the server), [`background`] (a server without a terminal) and
//! [`server_record`] (what runs on a data directory), [`providers`].

pub mod background;
pub mod data_dir;
pub mod embedded_server;
pub mod error;
pub mod isolation;
pub mod listen;
pub mod local_admin_login;
pub mod logging;
pub mod providers;
pub mod server_args;
pub mod server_log;
pub mod server_process;
pub mod server_record;
pub mod signals;
mod trace_export;
mod webhook_transport;

pub use error::{HostingError, ProviderError, StartError};
