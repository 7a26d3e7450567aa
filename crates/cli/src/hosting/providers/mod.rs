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
        let owned = [
            (ProviderArg::Slurm, "slurm", self.slurm.flags()),
            (ProviderArg::Kubernetes, "kubernetes", self.kubernetes.flags()),
        ];
        for (_, name, flags) in owned.into_iter().filter(|(owner, ..)| *owner != self.provider) {
            if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
                return Err(Failure::usage(format!("{flag} has no meaning without --provider {name}")));
            }
        }
        Ok(())
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
    fn every_option_of_one_that_was_not_chosen_is_refused() {
        let command = Line::command();
        let flags = command.get_arguments().filter_map(|flag| flag.get_long()).filter(|flag| *flag != "provider");
        let flags: Vec<_> = flags.collect();
        assert!(flags.len() > 20, "{flags:?}");
        for flag in flags {
            let owner = flag.split('-').next().expect("a word");
            for provider in ["joined", "slurm", "kubernetes"] {
                let line = Line::try_parse_from(["x", "--provider", provider, &format!("--{flag}=1")]);
                let checked = line.unwrap_or_else(|error| panic!("{error}")).args.check();
                let said = format!("--{flag} has no meaning without --provider {owner}");
                let expected = if provider == owner { Ok(()) } else { Err(said) };
                assert_eq!(checked.map_err(|failure| failure.message), expected);
            }
        }
    }
}
