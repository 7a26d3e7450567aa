//! Microsoft's storage SDK, run by `sdk.py` in the environment that `scripts/azure-clients` creates. Its processes get the
//! account key in their environment and time themselves, so that the start of Python is not measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::fixture::{ACCOUNT, SHARE};
use crate::peers::output_of;

const SCRIPT: &str = include_str!("sdk.py");
/// Environment variable for a folder with the environments, instead of the one below `target/`.
const CLIENTS_DIR_VARIABLE: &str = "CORRO_TEST_AZURE";
const ENVIRONMENT: &str = "sdk12";
const VERSION: &str =
    "from importlib.metadata import version as v; print(v('azure-storage-file-share'), v('requests'))";

/// The SDK's Python environment and the parameters of `sdk.py`.
pub struct Sdk {
    python: PathBuf,
    script: PathBuf,
    variables: Vec<(&'static str, String)>,
    /// Versions of `azure-storage-file-share` and `requests`.
    pub version: String,
}

/// Duration of one operation of one engine.
pub struct OperationTime {
    pub operation: String,
    pub engine: String,
    pub seconds: f64,
}

impl Sdk {
    /// `corro` and `nginx` are URLs.
    pub fn new(directory: &Path, corro: &str, nginx: &str, key: &str) -> Result<Self> {
        let python = python()?;
        let version = output_of(Command::new(&python).args(["-c", VERSION]))?.trim().replace(' ', ", requests ");
        let script = directory.join("sdk.py");
        std::fs::write(&script, SCRIPT)?;
        let variables = vec![
            ("BENCH_CORRO", corro.to_owned()),
            ("BENCH_NGINX", nginx.to_owned()),
            ("BENCH_ACCOUNT", ACCOUNT.to_owned()),
            ("BENCH_SHARE", SHARE.to_owned()),
            ("BENCH_KEY", key.to_owned()),
        ];
        Ok(Self { python, script, variables, version })
    }

    /// Runs one part of `sdk.py`.
    pub fn run(&self, part: &str, numbers: [usize; 2]) -> Result<Vec<OperationTime>> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).arg(part).args(numbers.map(|number| number.to_string()));
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).env("PYTHONDONTWRITEBYTECODE", "1");
        output_of(&mut command)?.lines().map(parse).collect()
    }
}

fn parse(line: &str) -> Result<OperationTime> {
    let read = || {
        let (name, seconds) = line.split_once(' ')?;
        let (operation, engine) = name.split_once('/')?;
        Some(OperationTime {
            operation: operation.to_owned(),
            engine: engine.to_owned(),
            seconds: seconds.parse().ok()?,
        })
    };
    read().with_context(|| format!("not a line of sdk.py: {line}"))
}

fn python() -> Result<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize()?;
    let clients =
        std::env::var_os(CLIENTS_DIR_VARIABLE).map_or_else(|| root.join("target/azure-clients"), PathBuf::from);
    let python = clients.join(ENVIRONMENT).join("bin/python");
    if !python.exists() {
        println!("installing the SDK");
        let installed = output_of(Command::new(root.join("scripts/azure-clients")).arg(ENVIRONMENT).current_dir(&root));
        installed.context("cannot install the SDK with scripts/azure-clients")?;
    }
    match python.exists() {
        true => Ok(python),
        false => bail!("no {ENVIRONMENT}/bin/python in {}", clients.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_work_player_and_seconds() {
        let time = parse("upload/nginx-whole 0.25").expect("good");
        assert_eq!((&*time.operation, &*time.engine, time.seconds), ("upload", "nginx-whole", 0.25));
        assert!(parse("upload 1").is_err() && parse("upload/sdk soon").is_err());
    }
}
