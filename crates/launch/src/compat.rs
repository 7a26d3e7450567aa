//! Layers that let old scripts run: Python packages of ours, written to a directory that ranks find first. `corro run
//! --compat` and the agent enter here. What is in a layer is Python's business (`compat/`); never touches what is installed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// With this variable a job asks for a layer by its name.
pub const VARIABLE: &str = "CORRO_COMPAT";

/// What can be asked for.
pub const KNOWN: [&str; 1] = ["keras-2018"];

#[derive(Debug, Error)]
pub enum CompatError {
    #[error("there is no compatibility layer '{name}': known is {}", KNOWN.join(", "))]
    Unknown { name: String },
    #[error("cannot write the compatibility layer to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The name, if there is a layer of that name.
pub fn check(name: &str) -> Result<(), CompatError> {
    match KNOWN.contains(&name) {
        true => Ok(()),
        false => Err(CompatError::Unknown { name: name.to_owned() }),
    }
}

/// The files of the layer: relative paths and contents.
pub fn files(name: &str) -> Result<&'static [(&'static str, &'static str)], CompatError> {
    check(name).map(|()| &KERAS_2018[..])
}

/// Writes the layer into `directory`, which is made if need be, and lets the processes with these variables find it.
pub fn enter(name: &str, directory: &Path, variables: &mut BTreeMap<String, String>) -> Result<(), CompatError> {
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

/// Lets the processes with these variables find a layer that was written to `directory`.
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
    fn a_layer_is_found_first() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directory = base.path().join("layer");
        let mut variables = BTreeMap::from([("PYTHONPATH".to_owned(), "/mine".to_owned())]);
        enter("keras-2018", &directory, &mut variables).expect("it can be written");
        assert_eq!(variables["PYTHONPATH"], format!("{}:/mine", directory.display()));
        assert!(directory.join("sitecustomize.py").is_file());
        assert!(directory.join("corro_keras_2018/cifar10_data.py").is_file());
        let mut bare = BTreeMap::new();
        enter("keras-2018", &directory, &mut bare).expect("it can be written again");
        assert_eq!(bare["PYTHONPATH"], directory.display().to_string());
        let refused = enter("keras-2017", &directory, &mut bare).expect_err("nobody knows it");
        assert_eq!(refused.to_string(), "there is no compatibility layer 'keras-2017': known is keras-2018");
    }
}
