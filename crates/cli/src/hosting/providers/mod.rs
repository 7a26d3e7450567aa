//! Those who make nodes, each behind the trait [`corro_server::Provider`], and the choice between those that `corro server`
//! has. The options of one stand in its own file.

pub mod joined;
pub mod kubernetes;
pub mod local;
pub mod slurm;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use slurm::SlurmArgs;

/// Who makes the nodes of `corro server`, and how.
#[derive(Args, Debug)]
pub struct ProviderArgs {
    /// Who makes nodes
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub provider: ProviderArg,

    #[command(flatten)]
    pub slurm: SlurmArgs,

    #[command(flatten)]
    pub kubernetes: kubernetes::args::KubernetesArgs,
}

impl ProviderArgs {
    /// Options of one that was not chosen are a mistake.
    pub fn check(&self) -> Result<(), Failure> {
        let stray = self.slurm.given().filter(|_| self.provider != ProviderArg::Slurm);
        stray.map_or(Ok(()), |flag| Err(Failure::usage(format!("{flag} has no meaning without --provider slurm"))))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProviderArg {
    /// Nobody: machines join by themselves, with 'corro agent' and the join token
    #[default]
    Joined,
    /// Slurm: a node is an allocation that runs an agent, submitted with sbatch as the user who runs the server
    Slurm,
    /// Kubernetes: nodes are pods
    Kubernetes,
}
