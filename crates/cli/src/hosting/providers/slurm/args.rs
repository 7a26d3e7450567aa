//! The options of `corro server --provider slurm`, and what they become.

use std::path::{Path, PathBuf};

use clap::Args;

use super::submission::Wishes;
use crate::failure::Failure;

#[derive(Args, Debug)]
#[command(next_help_heading = "With --provider slurm")]
pub struct SlurmArgs {
    /// The partition to take nodes from [default: Slurm's own]
    #[arg(long = "slurm-partition", value_name = "NAME")]
    partition: Option<String>,

    /// The account that nodes are charged to
    #[arg(long = "slurm-account", value_name = "NAME")]
    account: Option<String>,

    /// The quality of service to ask for
    #[arg(long = "slurm-qos", value_name = "NAME")]
    qos: Option<String>,

    /// How long a node may stay, as sbatch --time has it; when it ends, its job goes back to the queue [default: the
    /// partition's]
    #[arg(long = "slurm-time", value_name = "TIME")]
    time: Option<String>,

    /// One more option for sbatch, such as --slurm-option=--constraint=a100; may be repeated. It wins over all others:
    /// --slurm-option=--mem=0 asks for all memory, whatever the VM size says
    #[arg(long = "slurm-option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,

    /// The same, for nodes of low-priority clusters only: --slurm-low-priority-option=--qos=preemptible
    #[arg(long = "slurm-low-priority-option", value_name = "OPTION", allow_hyphen_values = true)]
    low_priority_options: Vec<String>,

    /// The path of corro on Slurm's nodes [default: where it is here]
    #[arg(long = "slurm-program", value_name = "PATH")]
    program: Option<PathBuf>,

    /// Where agents keep their directories, on a disk of their node; may name variables: '/scratch/$SLURM_JOB_ID'
    /// [default: /tmp]
    #[arg(long = "slurm-node-dir", value_name = "DIR")]
    node_dir: Option<String>,

    /// A directory, there on every node, for the agents' logs [default: none are kept]
    #[arg(long = "slurm-logs", value_name = "DIR")]
    logs: Option<PathBuf>,
}

impl SlurmArgs {
    /// All flags, and whether they were given.
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

    /// Refuses what cannot work before anything is made. `search` is where programs are looked for.
    pub fn wishes(&self, search: &str) -> Result<Wishes, Failure> {
        for program in ["sbatch", "squeue", "scancel"] {
            if !std::env::split_paths(search).any(|dir| dir.join(program).is_file()) {
                return Err(Failure::new(format!("--provider slurm needs {program}, which is not on PATH"))
                    .hint("install Slurm's client programs, or start the server on a machine that submits jobs"));
            }
        }
        for (flag, options) in
            [("--slurm-option", &self.options), ("--slurm-low-priority-option", &self.low_priority_options)]
        {
            if let Some(wrong) = options.iter().find(|option| !option.starts_with('-')) {
                return Err(Failure::usage(format!("{flag} {wrong}: sbatch would take it for a script"))
                    .hint(format!("write option and value as one word, as in {flag}=--constraint=a100")));
            }
        }
        let here = || std::env::current_exe().map_err(|error| Failure::of(&error));
        let program = self.program.clone().map_or_else(here, Ok)?;
        absolute("--slurm-program", &program)?;
        self.logs.as_deref().map_or(Ok(()), |logs| absolute("--slurm-logs", logs))?;
        Ok(Wishes {
            partition: self.partition.clone(),
            account: self.account.clone(),
            qos: self.qos.clone(),
            time: self.time.clone(),
            options: self.options.clone(),
            low_priority_options: self.low_priority_options.clone(),
            program,
            node_dir: node_dir(self.node_dir.as_deref().unwrap_or("/tmp"))?,
            logs: self.logs.clone(),
        })
    }
}

fn absolute(flag: &str, path: &Path) -> Result<(), Failure> {
    match path.is_absolute() {
        true => Ok(()),
        false => Err(Failure::usage(format!("{flag} {}: nodes need the whole path", path.display()))),
    }
}

/// It stands between double quotes in the script: variables are looked up, nothing is run.
fn node_dir(given: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.-+${}".contains(c);
    if (given.starts_with('/') || given.starts_with('$')) && given.chars().all(plain) {
        return Ok(given.trim_end_matches('/').to_owned());
    }
    Err(Failure::usage(format!("--slurm-node-dir {given}: it is not a whole path of plain letters"))
        .hint("write it as /scratch or '/scratch/$SLURM_JOB_ID'"))
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

    fn read(line: &str, programs: bool) -> Result<Wishes, String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["sbatch", "squeue", "scancel"].iter().filter(|_| programs) {
            std::fs::write(dir.path().join(name), "").expect("it can be written");
        }
        line.slurm.wishes(dir.path().to_str().expect("plain letters")).map_err(|failure| failure.message)
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (line, programs, says) in [
            ("", false, "needs sbatch"),
            ("--slurm-option=gpu", true, "--slurm-option gpu"),
            ("--slurm-program corro", true, "--slurm-program corro"),
            ("--slurm-logs logs", true, "--slurm-logs logs"),
            ("--slurm-node-dir tmp", true, "--slurm-node-dir tmp"),
            ("--slurm-node-dir /tmp/$(id)", true, "--slurm-node-dir"),
        ] {
            let said = read(line, programs).expect_err(line);
            assert!(said.contains(says), "{line}: {said}");
        }
        let wishes =
            read("--slurm-option --constraint=a100 --slurm-node-dir /scratch/$USER/", true).expect("it is fine");
        assert_eq!(
            (wishes.options, wishes.node_dir),
            (vec!["--constraint=a100".to_owned()], "/scratch/$USER".to_owned())
        );
    }
}
