//! Options of `corro server --provider slurm` and their validation.

use std::path::{Path, PathBuf};

use clap::Args;

use super::batch_script::SlurmOptions;
use crate::ProviderError;

#[derive(Args, Debug)]
#[command(next_help_heading = "With --provider slurm")]
pub struct SlurmArgs {
    /// Partition for the nodes [default: Slurm's default partition]
    #[arg(long = "slurm-partition", value_name = "NAME")]
    partition: Option<String>,

    /// Account to charge
    #[arg(long = "slurm-account", value_name = "NAME")]
    account: Option<String>,

    /// Quality of service (QOS)
    #[arg(long = "slurm-qos", value_name = "NAME")]
    qos: Option<String>,

    /// Time limit of a node, as in sbatch --time. When it is reached, the node's job goes back to the queue [default: the
    /// partition's limit]
    #[arg(long = "slurm-time", value_name = "TIME")]
    time: Option<String>,

    /// Additional option for sbatch, such as --slurm-option=--constraint=a100. It overrides all other options:
    /// --slurm-option=--mem=0 requests all memory, regardless of the VM size. Can be repeated
    #[arg(long = "slurm-option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,

    /// Additional option for sbatch for nodes of low-priority clusters, such as
    /// --slurm-low-priority-option=--qos=preemptible. Can be repeated
    #[arg(long = "slurm-low-priority-option", value_name = "OPTION", allow_hyphen_values = true)]
    low_priority_options: Vec<String>,

    /// Path of corro on the Slurm nodes [default: the path on this machine]
    #[arg(long = "slurm-program", value_name = "PATH")]
    program: Option<PathBuf>,

    /// Directory for agents, on a local disk of the Slurm node. It can contain variables, as in '/scratch/$SLURM_JOB_ID'
    /// [default: /tmp]
    #[arg(long = "slurm-node-dir", value_name = "DIR")]
    node_dir: Option<String>,

    /// Directory for the logs of agents. It must exist on every Slurm node [default: logs are discarded]
    #[arg(long = "slurm-logs", value_name = "DIR")]
    logs: Option<PathBuf>,
}

impl SlurmArgs {
    /// All flags of this provider, and whether each was given.
    pub fn flags(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("--slurm-partition", self.partition.is_some()),
            ("--slurm-account", self.account.is_some()),
            ("--slurm-qos", self.qos.is_some()),
            ("--slurm-time", self.time.is_some()),
            ("--slurm-option", !self.options.is_empty()),
            ("--slurm-low-priority-option", !self.low_priority_options.is_empty()),
            ("--slurm-program", self.program.is_some()),
            ("--slurm-node-dir", self.node_dir.is_some()),
            ("--slurm-logs", self.logs.is_some()),
        ]
    }

    /// Validates the options. Slurm's client programs must be in one of the directories of `search_path`.
    pub fn to_options(&self, search_path: &str) -> Result<SlurmOptions, ProviderError> {
        for program in ["sbatch", "squeue", "scancel"] {
            if !std::env::split_paths(search_path).any(|dir| dir.join(program).is_file()) {
                return Err(ProviderError::SlurmProgramMissing { program });
            }
        }
        for (flag, options) in
            [("--slurm-option", &self.options), ("--slurm-low-priority-option", &self.low_priority_options)]
        {
            if let Some(wrong) = options.iter().find(|option| !option.starts_with('-')) {
                return Err(ProviderError::SlurmOption { flag, option: wrong.clone() });
            }
        }
        let own_path = || std::env::current_exe().map_err(ProviderError::OwnPath);
        let program = self.program.clone().map_or_else(own_path, Ok)?;
        require_absolute("--slurm-program", &program)?;
        self.logs.as_deref().map_or(Ok(()), |logs| require_absolute("--slurm-logs", logs))?;
        Ok(SlurmOptions {
            partition: self.partition.clone(),
            account: self.account.clone(),
            qos: self.qos.clone(),
            time: self.time.clone(),
            options: self.options.clone(),
            low_priority_options: self.low_priority_options.clone(),
            program,
            node_dir: parse_node_dir(self.node_dir.as_deref().unwrap_or("/tmp"))?,
            logs: self.logs.clone(),
        })
    }
}

fn require_absolute(flag: &'static str, path: &Path) -> Result<(), ProviderError> {
    match path.is_absolute() {
        true => Ok(()),
        false => Err(ProviderError::RelativePath { flag, path: path.to_owned() }),
    }
}

/// The path is written between double quotes in the batch script. The accepted characters allow variables and no command substitution.
fn parse_node_dir(given: &str) -> Result<String, ProviderError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.-+${}".contains(c);
    if (given.starts_with('/') || given.starts_with('$')) && given.chars().all(plain) {
        return Ok(given.trim_end_matches('/').to_owned());
    }
    Err(ProviderError::SlurmNodeDir { text: given.to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        slurm: SlurmArgs,
    }

    fn read(line: &str, programs: bool) -> Result<SlurmOptions, String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["sbatch", "squeue", "scancel"].iter().filter(|_| programs) {
            std::fs::write(dir.path().join(name), "").expect("it can be written");
        }
        line.slurm.to_options(dir.path().to_str().expect("plain letters")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (line, programs, expected) in [
            ("", false, "needs sbatch"),
            ("--slurm-option=gpu", true, "--slurm-option gpu"),
            ("--slurm-program corro", true, "--slurm-program corro"),
            ("--slurm-logs logs", true, "--slurm-logs logs"),
            ("--slurm-node-dir tmp", true, "--slurm-node-dir tmp"),
            ("--slurm-node-dir /tmp/$(id)", true, "--slurm-node-dir"),
        ] {
            let message = read(line, programs).expect_err(line);
            assert!(message.contains(expected), "{line}: {message}");
        }
        let options =
            read("--slurm-option --constraint=a100 --slurm-node-dir /scratch/$USER/", true).expect("it is fine");
        assert_eq!(
            (options.options, options.node_dir),
            (vec!["--constraint=a100".to_owned()], "/scratch/$USER".to_owned())
        );
    }
}
