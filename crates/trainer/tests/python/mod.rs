//! Python interpreter with Keras for the tests: `CORRO_TEST_PYTHON`, or the environment made by `scripts/python-env`.
#![allow(dead_code, reason = "each test executable uses its own part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use corro_test_support::skip;

/// `None`, with a message, if there is no Keras. A configured interpreter without Keras is a failure.
pub fn python() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CORRO_TEST_PYTHON").map(PathBuf::from) {
        assert!(has_keras(&named), "CORRO_TEST_PYTHON={} has no Keras, or no JAX", named.display());
        return Some(named);
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    let made = target.join("test-python/bin/python");
    if has_keras(&made) {
        return Some(made);
    }
    skip::missing_component("needs Python with Keras; scripts/python-env makes one");
    None
}

/// Runs a script in `tests/` and returns its standard output.
pub fn run(python: &Path, script: &str, arguments: &[&OsStr]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = command(python).arg(&script).args(arguments).output().expect("the interpreter starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} failed:\n{stdout}{stderr}", script.display());
    stdout.into_owned()
}

fn has_keras(python: &Path) -> bool {
    // Finding the modules is much faster than importing them.
    let look = "import importlib.util as look; assert look.find_spec('jax') and look.find_spec('keras')";
    let looked = command(python).args(["-c", look]).output();
    looked.is_ok_and(|output| output.status.success())
}

fn command(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.env("KERAS_BACKEND", "jax").env("JAX_PLATFORMS", "cpu");
    command
}
