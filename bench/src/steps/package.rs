//! Our Python package as users get it: the wheel that `scripts/wheel` builds, unpacked into a given directory. Installs nothing
//! outside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::{find, output_of};

/// The given wheel, or else one built now from this tree.
pub fn find_or_build(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = given {
        ensure!(file.exists(), "no such wheel: {}", file.display());
        return Ok(file.canonicalize()?);
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize()?;
    println!("building the wheel");
    output_of(Command::new(root.join("scripts/wheel")).current_dir(&root)).context("cannot build the wheel")?;
    newest_wheel(&root.join("dist")).context("scripts/wheel has left no wheel in dist/")
}

/// A directory for PYTHONPATH, with all dependencies included. A directory instead of a wheel is used as it is.
pub fn unpack(wheel: &Path, directory: &Path) -> Result<PathBuf> {
    if wheel.is_dir() {
        return Ok(wheel.to_owned());
    }
    let target = directory.join("horovod-of-corro");
    let python = find("python3").context("no python3")?;
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
    output_of(command.arg(&target).arg(wheel)).context("cannot install the wheel")?;
    Ok(target)
}

fn newest_wheel(directory: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?.filter_map(|file| Some(file.ok()?.path()));
    let wheels = files.filter(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("horovod-") && name.ends_with(".whl")
    });
    wheels.max_by_key(|file| file.metadata().and_then(|metadata| metadata.modified()).ok())
}
