//! Files of a job's project: the directory in which it starts, or that of its script. Finds a file that a program looked
//! for in another directory. Pure: the server lists the files.

use crate::batchai::{JobSpec, ToolType};
use crate::mount::strip_variable;

/// Files below the directory of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFiles {
    /// The directory, as the job file names it.
    pub root: String,
    /// Paths below it.
    pub files: Vec<String>,
}

impl ProjectFiles {
    /// The file of a Python module, and the directory that has to be in `PYTHONPATH`; the shortest path first.
    pub fn find_module(&self, module: &str) -> Option<(&str, &str)> {
        let directory_of = |path: &'_ str| -> Option<usize> {
            let file = format!("{module}.py");
            if path == file || path.ends_with(&format!("/{file}")) {
                return Some(path.len() - file.len());
            }
            // A package, with or without __init__.py.
            let below =
                if path.starts_with(&format!("{module}/")) { 0 } else { path.find(&format!("/{module}/"))? + 1 };
            path.ends_with(".py").then_some(below)
        };
        let found = self.files.iter().filter_map(|path| Some((path, directory_of(path)?)));
        let (path, at) = found.min_by_key(|(path, at)| (*at, path.len()))?;
        Some((path, path[..at].trim_end_matches('/')))
    }

    /// A file with the name of `path` in another directory.
    pub fn find_file(&self, path: &str) -> Option<&str> {
        let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
        let named = self.files.iter().filter(|file| file.rsplit('/').next() == Some(name));
        named.min_by_key(|file| file.len()).map(String::as_str).filter(|file| !path.ends_with(&format!("/{file}")))
    }

    /// The path of a directory of the project in a job file.
    pub fn path_of(&self, directory: &str) -> String {
        if directory.is_empty() { self.root.clone() } else { format!("{}/{directory}", self.root) }
    }
}

/// The directory of a job's files, as a path that begins with a mount root where possible: the working directory, else
/// that of the script.
pub fn project_root(spec: &JobSpec) -> Option<String> {
    let root = match &spec.working_directory {
        Some(directory) => directory.as_str(),
        None => script(spec)?.rsplit_once('/')?.0,
    };
    let of_input = spec.input_directories.iter().find_map(|input| {
        let rest = strip_variable(root, &format!("AZ_BATCHAI_INPUT_{}", input.id))?;
        Some(format!("{}{rest}", input.path))
    });
    Some(of_input.unwrap_or_else(|| root.to_owned()).trim_end_matches('/').to_owned())
}

/// Path of the script that a job runs, if it runs one.
pub fn script(spec: &JobSpec) -> Option<&str> {
    let of_settings = match spec.toolkit()? {
        ToolType::Horovod => spec.horovod_settings.as_ref().map(|settings| &settings.python_script_file_path),
        ToolType::Chainer => spec.chainer_settings.as_ref().map(|settings| &settings.python_script_file_path),
        ToolType::PyTorch => spec.py_torch_settings.as_ref().map(|settings| &settings.python_script_file_path),
        ToolType::TensorFlow => spec.tensor_flow_settings.as_ref().map(|settings| &settings.python_script_file_path),
        ToolType::Caffe2 => spec.caffe2_settings.as_ref().map(|settings| &settings.python_script_file_path),
        ToolType::Caffe => spec.caffe_settings.as_ref().and_then(|settings| settings.python_script_file_path.as_ref()),
        ToolType::Cntk => spec.cntk_settings.as_ref().and_then(|settings| settings.python_script_file_path.as_ref()),
        ToolType::Custom | ToolType::CustomMpi => None,
    };
    let command = spec.custom_toolkit_settings.as_ref().and_then(|settings| settings.command_line.as_deref());
    let command = command.or(spec.custom_mpi_settings.as_ref().map(|settings| settings.command_line.as_str()));
    let of_command = || {
        let mut words = command?.split_whitespace().map(|word| word.trim_matches(['"', '\'', ';', '(', ')', '&']));
        words.find(|word| word.ends_with(".py") || word.ends_with(".sh"))
    };
    of_settings.map(String::as_str).or_else(of_command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn modules_and_files_are_found_in_other_directories() {
        let files =
            ["train.py", "lib/utils.py", "lib/deep/utils.py", "src/nets/__init__.py", "src/plain/a.py", "data/a.csv"];
        let project = ProjectFiles { root: "$R".into(), files: files.map(str::to_owned).into() };
        for (module, expected) in [
            ("utils", Some(("lib/utils.py", "lib"))),
            ("nets", Some(("src/nets/__init__.py", "src"))),
            ("plain", Some(("src/plain/a.py", "src"))),
            ("train", Some(("train.py", ""))),
            ("data", None),
            ("keras", None),
        ] {
            assert_eq!(project.find_module(module), expected, "{module}");
        }
        for (path, expected) in [
            ("a.csv", Some("data/a.csv")),
            ("/x/data/a.csv", None),
            ("/x/other/a.csv", Some("data/a.csv")),
            ("b.csv", None),
        ] {
            assert_eq!(project.find_file(path), expected, "{path}");
        }
        assert_eq!((project.path_of("lib"), project.path_of("")), ("$R/lib".to_owned(), "$R".to_owned()));
    }

    #[test]
    fn the_root_is_the_working_directory_or_that_of_the_script() {
        let check = |settings: Value, expected: Option<&str>| {
            let mut spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x",
                "inputDirectories": [{"id": "CODE", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code"}]});
            spec.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
            let spec: JobSpec = serde_json::from_value(spec).expect("a job");
            assert_eq!(project_root(&spec).as_deref(), expected, "{settings}");
        };
        let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare";
        check(
            json!({"horovodSettings": {"pythonScriptFilePath": format!("{share}/a/train.py")}}),
            Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/a"),
        );
        check(
            json!({"pyTorchSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_INPUT_CODE/train.py"}}),
            Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code"),
        );
        let command = format!("cd /tmp; python3 \"{share}/b/run.py\" --epochs 3");
        check(json!({"customToolkitSettings": {"commandLine": command}}), Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/b"));
        let command = json!({"commandLine": "python3 train.py"});
        check(json!({"customMpiSettings": command, "workingDirectory": share}), Some(share));
        check(json!({"customMpiSettings": command}), None);
        check(json!({"customToolkitSettings": {"commandLine": "true"}}), None);
    }
}
