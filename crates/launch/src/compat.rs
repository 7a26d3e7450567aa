//! Compatibility layers for old scripts: Python packages (`compat/`) that are written to a directory at the front of `PYTHONPATH`. Never changes installed
//! packages.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The variable with which a job requests a layer by name.
pub const VARIABLE: &str = "CORRO_COMPAT";

/// The names of all layers.
pub const LAYERS: [&str; 1] = ["keras-2018"];

#[derive(Debug, Error)]
pub enum CompatError {
    #[error("unknown compatibility layer '{name}': use {}", LAYERS.join(", "))]
    Unknown { name: String },
    #[error("cannot write the compatibility layer to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Checks that there is a layer of that name.
pub fn check(name: &str) -> Result<(), CompatError> {
    match LAYERS.contains(&name) {
        true => Ok(()),
        false => Err(CompatError::Unknown { name: name.to_owned() }),
    }
}

/// The files of the layer: relative paths and contents.
pub fn files(name: &str) -> Result<&'static [(&'static str, &'static str)], CompatError> {
    check(name).map(|()| &KERAS_2018[..])
}

/// Writes the layer into `directory`, which is created if necessary, and adds its variables.
pub fn install(name: &str, directory: &Path, variables: &mut BTreeMap<String, String>) -> Result<(), CompatError> {
    for (file, content) in files(name)? {
        let path = directory.join(file);
        let parent = path.parent().expect("a file lies in a directory");
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .map_err(|source| CompatError::Write { path: path.clone(), source })?;
    }
    add_variables(name, directory, variables);
    Ok(())
}

/// Adds the variables with which processes find a layer that was written to `directory`.
pub fn add_variables(name: &str, directory: &Path, variables: &mut BTreeMap<String, String>) {
    let own = directory.to_string_lossy();
    let path = match variables.get(PYTHON_PATH).filter(|path| !path.is_empty()) {
        Some(path) => format!("{own}:{path}"),
        None => own.into_owned(),
    };
    variables.insert(PYTHON_PATH.to_owned(), path);
    variables.insert(VARIABLE.to_owned(), name.to_owned());
}

const PYTHON_PATH: &str = "PYTHONPATH";

macro_rules! keras_2018 {
    ($name:literal) => {
        (concat!("corro_keras_2018/", $name), include_str!(concat!("compat/keras_2018/corro_keras_2018/", $name)))
    };
}

static KERAS_2018: [(&str, &str); 8] = [
    ("sitecustomize.py", include_str!("compat/keras_2018/sitecustomize.py")),
    keras_2018!("__init__.py"),
    keras_2018!("datasets.py"),
    keras_2018!("models.py"),
    keras_2018!("modules.py"),
    keras_2018!("optimizers.py"),
    keras_2018!("sessions.py"),
    // The same reader as in the examples.
    ("corro_keras_2018/cifar10_data.py", include_str!("../../../examples/cifar10/cifar10_data.py")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_precedes_the_python_path() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directory = base.path().join("layer");
        let mut variables = BTreeMap::from([("PYTHONPATH".to_owned(), "/mine".to_owned())]);
        install("keras-2018", &directory, &mut variables).expect("it can be written");
        assert_eq!(variables["PYTHONPATH"], format!("{}:/mine", directory.display()));
        assert!(directory.join("sitecustomize.py").is_file());
        assert!(directory.join("corro_keras_2018/cifar10_data.py").is_file());
        let mut bare = BTreeMap::new();
        install("keras-2018", &directory, &mut bare).expect("it can be written again");
        assert_eq!(bare["PYTHONPATH"], directory.display().to_string());
        let refused = install("keras-2017", &directory, &mut bare).expect_err("nobody knows it");
        assert_eq!(refused.to_string(), "unknown compatibility layer 'keras-2017': use keras-2018");
    }
}
