//! The `--isolation` option of servers and agents: how far jobs on one machine are kept from each other.

use clap::{Args, ValueEnum};
use corro_agent::IsolationMode;

#[derive(Args, Clone, Copy, Debug)]
pub struct IsolationArgs {
    /// Isolation of jobs from each other and from the server's files: as far as this machine allows (auto), none (off), or
    /// required, so that a job fails where it is not possible (strict). Execution logs show what was done
    /// [default: strict for jobs that start while the server has more than one principal, else auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub isolation: Option<IsolationArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    Auto,
    Off,
    Strict,
}

impl IsolationArg {
    /// The value as it is written on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            IsolationArg::Auto => "auto",
            IsolationArg::Off => "off",
            IsolationArg::Strict => "strict",
        }
    }

    /// The agent's mode of the same name.
    pub fn mode(self) -> IsolationMode {
        match self {
            IsolationArg::Auto => IsolationMode::Auto,
            IsolationArg::Off => IsolationMode::Off,
            IsolationArg::Strict => IsolationMode::Strict,
        }
    }
}
