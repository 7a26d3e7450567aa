//! Upstream Horovod, built from PyPI's source for Debian's PyTorch: Gloo, without MPI and TensorFlow. The build takes minutes
//! and a compiler, so it runs only on request; later runs reuse it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{cache_dir, install, output_of};

pub const VERSION: &str = "0.28.1";
/// File written after the installation: without it the environment is incomplete.
const COMPLETE_MARKER: &str = "installed";
/// A compiler, and the headers of Python and of torch.
const BUILD_PACKAGES: &str = "g++ make cmake python3-dev python3-venv python3-torch libtorch-dev pybind11-dev";
const BUILD_TOOLS: [&str; 7] = ["wheel", "setuptools<70", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi"];
const BUILD_VARIABLES: [(&str, &str); 5] = [
    ("HOROVOD_WITH_PYTORCH", "1"),
    ("HOROVOD_WITH_GLOO", "1"),
    ("HOROVOD_WITHOUT_MPI", "1"),
    ("HOROVOD_WITHOUT_TENSORFLOW", "1"),
    ("HOROVOD_WITHOUT_MXNET", "1"),
];

/// A Python that imports it, if an earlier run has built it.
pub fn installed() -> Option<PathBuf> {
    let environment = environment_dir().ok().filter(|environment| environment.join(COMPLETE_MARKER).is_file())?;
    Some(environment.join("bin/python"))
}

/// A Python that imports it; built if missing.
pub fn interpreter() -> Result<PathBuf> {
    if let Some(python) = installed() {
        return Ok(python);
    }
    let environment = environment_dir()?;
    build(&environment)?;
    Ok(environment.join("bin/python"))
}

fn build(environment: &Path) -> Result<()> {
    install(BUILD_PACKAGES)?;
    println!("building horovod {VERSION} from PyPI's source, once");
    fs::create_dir_all(environment).with_context(|| format!("cannot create {}", environment.display()))?;
    // Debian's interpreter is the one that sees Debian's torch.
    output_of(
        Command::new("/usr/bin/python3").args(["-m", "venv", "--clear", "--system-site-packages"]).arg(environment),
    )?;
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(environment.join("bin/pip"));
        output_of(command.args(["install", "--quiet"]).args(arguments).envs(BUILD_VARIABLES))
    };
    pip(&BUILD_TOOLS)?;
    pip(&["--no-build-isolation", "--no-deps", &format!("horovod=={VERSION}")]).context("cannot build horovod")?;
    Ok(fs::write(environment.join(COMPLETE_MARKER), "")?)
}

fn environment_dir() -> Result<PathBuf> {
    Ok(cache_dir()?.join(format!("horovod-{VERSION}")))
}
