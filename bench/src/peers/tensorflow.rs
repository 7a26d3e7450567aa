//! TensorFlow from PyPI, in a virtual environment that later runs reuse because it is large. Runs `training_tf.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{cache_dir, find, output_of};
use crate::trainer::gang::Program;

const PROGRAM: &str = include_str!("training_tf.py");
pub const VERSION: &str = "2.21.0";
/// File written after the installation: without it the environment is incomplete.
const COMPLETE_MARKER: &str = "installed";

/// Command of a rank; installs TensorFlow if missing.
pub fn training(directory: &Path) -> Result<Program> {
    let python = interpreter()?;
    let script = directory.join("training_tf.py");
    fs::write(&script, PROGRAM)?;
    let arguments = vec![script.display().to_string()];
    Ok(Program { program: python, arguments, variables: Vec::new(), ports: true })
}

/// A Python with TensorFlow and Keras; installed if missing.
pub fn interpreter() -> Result<PathBuf> {
    let environment = environment_dir()?;
    if !environment.join(COMPLETE_MARKER).is_file() {
        install(&environment)?;
    }
    Ok(environment.join("bin/python"))
}

/// Like `interpreter`, if an earlier run has installed it.
pub fn installed() -> Option<PathBuf> {
    let environment = environment_dir().ok().filter(|environment| environment.join(COMPLETE_MARKER).is_file())?;
    Some(environment.join("bin/python"))
}

fn environment_dir() -> Result<PathBuf> {
    Ok(cache_dir()?.join(format!("tensorflow-{VERSION}")))
}

fn install(environment: &Path) -> Result<()> {
    println!("installing tensorflow-cpu {VERSION} from PyPI, once");
    let python = find("python3").context("no python3")?;
    fs::create_dir_all(environment).with_context(|| format!("cannot create {}", environment.display()))?;
    output_of(Command::new(python).args(["-m", "venv", "--clear"]).arg(environment))?;
    let package = format!("tensorflow-cpu=={VERSION}");
    output_of(Command::new(environment.join("bin/pip")).args(["install", "--quiet", &package]))
        .with_context(|| format!("cannot install {package} from PyPI"))?;
    Ok(fs::write(environment.join(COMPLETE_MARKER), "")?)
}
