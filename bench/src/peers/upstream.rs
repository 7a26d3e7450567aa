//! Upstream Horovod, built from PyPI's source for Debian's PyTorch: Gloo, without MPI and TensorFlow. The build takes minutes
//! and a compiler, so it runs only on request; later runs reuse it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{cache, install, output_of};

pub const VERSION: &str = "0.28.1";
/// Written last: without it the environment is incomplete.
const WHOLE: &str = "installed";
/// A compiler, and the headers of Python and of torch.
const NEEDED: &str = "g++ make cmake python3-dev python3-venv python3-torch libtorch-dev pybind11-dev";
const TOOLS: [&str; 7] = ["wheel", "setuptools<70", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi"];
const SETTINGS: [(&str, &str); 5] = [
    ("HOROVOD_WITH_PYTORCH", "1"),
    ("HOROVOD_WITH_GLOO", "1"),
    ("HOROVOD_WITHOUT_MPI", "1"),
    ("HOROVOD_WITHOUT_TENSORFLOW", "1"),
    ("HOROVOD_WITHOUT_MXNET", "1"),
];

/// A Python that imports it, if an earlier run has built it.
pub fn installed() -> Option<PathBuf> {
    let home = home().ok().filter(|home| home.join(WHOLE).is_file())?;
    Some(home.join("bin/python"))
}

/// The same, built if missing.
pub fn interpreter() -> Result<PathBuf> {
    if let Some(python) = installed() {
        return Ok(python);
    }
    let home = home()?;
    build(&home)?;
    Ok(home.join("bin/python"))
}

fn build(home: &Path) -> Result<()> {
    install(NEEDED)?;
    println!("building horovod {VERSION} from PyPI's source, once");
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    // Debian's interpreter is the one that sees Debian's torch.
    output_of(Command::new("/usr/bin/python3").args(["-m", "venv", "--clear", "--system-site-packages"]).arg(home))?;
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(home.join("bin/pip"));
        output_of(command.args(["install", "--quiet"]).args(arguments).envs(SETTINGS))
    };
    pip(&TOOLS)?;
    pip(&["--no-build-isolation", "--no-deps", &format!("horovod=={VERSION}")]).context("cannot build horovod")?;
    Ok(fs::write(home.join(WHOLE), "")?)
}

fn home() -> Result<PathBuf> {
    Ok(cache()?.join(format!("horovod-{VERSION}")))
}
