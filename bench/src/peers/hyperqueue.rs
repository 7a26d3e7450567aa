//! HyperQueue from PyPI, in a virtual environment of this run. Its package has no command line: server, workers and client live
//! in one Python process, and the client calls straight into its Rust library, which is its fastest interface.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::output_of;

const SCRIPT: &str = include_str!("hyperqueue.py");

pub struct HyperQueue {
    directory: PathBuf,
    pub version: String,
}

/// Jobs per second of one round.
pub struct Round {
    /// Every job submitted separately.
    pub single: f64,
    /// One job with as many tasks.
    pub array: f64,
}

impl HyperQueue {
    pub fn install(directory: &Path) -> Result<Self> {
        let directory = directory.join("hyperqueue");
        output_of(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
        let pip = directory.join("bin/pip");
        output_of(Command::new(&pip).args(["install", "--quiet", "hyperqueue"]))
            .context("cannot install hyperqueue from PyPI")?;
        let details = output_of(Command::new(&pip).args(["show", "hyperqueue"]))?;
        let version = details.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("?").to_owned();
        std::fs::write(directory.join("jobs.py"), SCRIPT)?;
        Ok(Self { directory, version })
    }

    pub fn run(&self, jobs: usize, rounds: usize, line: &str) -> Result<Vec<Round>> {
        // Not deleted until all is measured: when it creates a file, ext4 skips every inode that was freed within the last
        // minutes, so deleting thousands of files slows down every engine measured afterwards.
        let work = tempfile::Builder::new().prefix("run-").tempdir_in(&self.directory)?.keep();
        let mut command = Command::new(self.directory.join("bin/python"));
        command.arg(self.directory.join("jobs.py")).arg(jobs.to_string()).arg(rounds.to_string());
        let output = output_of(command.arg(&work).arg(line).current_dir(&work))?;
        output.lines().filter_map(|line| line.strip_prefix("round ")).map(parse).collect()
    }
}

fn parse(line: &str) -> Result<Round> {
    let (single, array) = line.split_once(' ').context("a round has two rates")?;
    Ok(Round { single: single.parse()?, array: array.parse()? })
}
