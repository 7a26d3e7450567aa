//! TensorFlow from PyPI, in a virtual environment that the next run finds again: it is large. Runs the program in `training_tf.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{find, output_of};
use crate::trainer::gang::Program;

const PROGRAM: &str = include_str!("training_tf.py");
pub const VERSION: &str = "2.21.0";
/// Written last of all: without it the environment is not whole.
const WHOLE: &str = "installed";

/// What starts a rank; installs it when it is not there.
pub fn training(directory: &Path) -> Result<Program> {
    let home = cache()?.join(format!("tensorflow-{VERSION}"));
    if !home.join(WHOLE).is_file() {
        install(&home)?;
    }
    let script = directory.join("training_tf.py");
    fs::write(&script, PROGRAM)?;
    let arguments = vec![script.display().to_string()];
    Ok(Program { program: home.join("bin/python"), arguments, variables: Vec::new(), ports: true })
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

/// Where this user keeps what can be made again.
fn cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.context("there is no HOME to keep TensorFlow in")?.join("corro-bench"))
}
