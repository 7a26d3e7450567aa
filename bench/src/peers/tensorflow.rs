//! TensorFlow from PyPI, in a virtual environment that later runs reuse because it is large. Runs `training_tf.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{cache, find, output_of};
use crate::trainer::gang::Program;

const PROGRAM: &str = include_str!("training_tf.py");
pub const VERSION: &str = "2.21.0";
/// Written last: without it the environment is incomplete.
const WHOLE: &str = "installed";

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
    let home = home()?;
    if !home.join(WHOLE).is_file() {
        install(&home)?;
    }
    Ok(home.join("bin/python"))
}

/// The same, if an earlier run has installed it.
pub fn installed() -> Option<PathBuf> {
    let home = home().ok().filter(|home| home.join(WHOLE).is_file())?;
    Some(home.join("bin/python"))
}

fn home() -> Result<PathBuf> {
    Ok(cache()?.join(format!("tensorflow-{VERSION}")))
}

fn install(home: &Path) -> Result<()> {
    println!("installing tensorflow-cpu {VERSION} from PyPI, once");
    let python = find("python3").context("no python3")?;
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    output_of(Command::new(python).args(["-m", "venv", "--clear"]).arg(home))?;
    let package = format!("tensorflow-cpu=={VERSION}");
    output_of(Command::new(home.join("bin/pip")).args(["install", "--quiet", &package]))
        .with_context(|| format!("cannot install {package} from PyPI"))?;
    Ok(fs::write(home.join(WHOLE), "")?)
}
