//! Those who make nodes, each behind the trait [`corro_server::Provider`], and the choice between those that `corro server`
//! has. The options of one stand in its own file.

pub mod joined;
pub mod local;

use clap::{Args, ValueEnum};

/// Who makes the nodes of `corro server`, and how.
#[derive(Args, Debug)]
pub struct ProviderArgs {
    /// Who makes nodes
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub provider: ProviderArg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProviderArg {
    /// Nobody: machines join by themselves, with 'corro agent' and the join token
    #[default]
    Joined,
}
