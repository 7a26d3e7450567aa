//! Node providers, each an implementation of [`corro_server::Provider`], and the `--provider` option of `corro server`. The options
//! of a provider are defined in its own folder.

pub mod joined;
pub mod kubernetes;
pub mod local;
pub mod slurm;

use clap::{Args, ValueEnum};

use crate::ProviderError;
use slurm::SlurmArgs;

/// `--provider` and the options of all providers.
#[derive(Args, Debug)]
pub struct ProviderArgs {
    /// Where nodes come from
    #[arg(long, value_enum, default_value_t, value_name = "PROVIDER")]
    pub provider: ProviderArg,

    #[command(flatten)]
    pub slurm: SlurmArgs,

    #[command(flatten)]
    pub kubernetes: kubernetes::args::KubernetesArgs,
}

impl ProviderArgs {
    /// Rejects options of a provider that was not chosen.
    pub fn validate(&self) -> Result<(), ProviderError> {
        let owned = [
            (ProviderArg::Slurm, "slurm", self.slurm.flags()),
            (ProviderArg::Kubernetes, "kubernetes", self.kubernetes.flags()),
        ];
        for (_, provider, flags) in owned.into_iter().filter(|(owner, ..)| *owner != self.provider) {
            if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
                return Err(ProviderError::OtherProvider { flag, provider });
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProviderArg {
    /// Machines that you join to the server with 'corro agent join'
    #[default]
    Joined,
    /// Slurm allocations, which the server submits with sbatch as its own user
    Slurm,
    /// Kubernetes pods, which the server creates
    Kubernetes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProviderArgs,
    }

    #[test]
    fn options_of_a_provider_that_was_not_chosen_are_rejected() {
        let command = Line::command();
        let flags = command.get_arguments().filter_map(|flag| flag.get_long()).filter(|flag| *flag != "provider");
        let flags: Vec<_> = flags.collect();
        assert!(flags.len() > 20, "{flags:?}");
        for flag in flags {
            let owner = flag.split('-').next().expect("a word");
            for provider in ["joined", "slurm", "kubernetes"] {
                let line = Line::try_parse_from(["x", "--provider", provider, &format!("--{flag}=1")]);
                let checked = line.unwrap_or_else(|error| panic!("{error}")).args.validate();
                let said = format!("--{flag} requires --provider {owner}");
                let expected = if provider == owner { Ok(()) } else { Err(said) };
                assert_eq!(checked.map_err(|failure| failure.to_string()), expected);
            }
        }
    }
}
