//! The `--isolation` option of servers and agents: how far jobs on one machine are kept from each other.

use clap::{Args, ValueEnum};
use corro_agent::IsolationMode;

#[derive(Args, Clone, Copy, Debug)]
pub struct IsolationArgs {
    /// Isolation of jobs from each other and from the server's files. auto isolates jobs where the machine allows it. strict
    /// fails jobs that cannot be isolated. off does not isolate jobs. The execution log of a job shows what was applied
    /// [default: strict while the server has more than one principal, otherwise auto]
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
