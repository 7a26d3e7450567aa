//! Remedies for failures of Python and `pip` that are known from the last lines on stderr: a missing module, a package
//! index that cannot be reached, a Python without `ensurepip`, no Python at all. Pure.

use crate::batchai::JobSpec;
use crate::docs_keys;

/// The process that failed, as far as its remedy depends on it.
#[derive(Clone, Copy, Debug)]
pub struct FailedProcess<'a> {
    pub spec: &'a JobSpec,
    /// Whether it is the job preparation.
    pub is_preparation: bool,
    /// Its last lines on stderr.
    pub stderr: &'a str,
}

/// Remedy for a known failure, with the key of its documentation. The first failure is the cause of the others, so the
/// rules are tried in the order in which one leads to the next.
pub fn remedy(failed: FailedProcess<'_>) -> Option<String> {
    let (words, key) = missing_interpreter(failed)
        .map(|words| (words, docs_keys::PYTHON_NOT_FOUND))
        .or_else(|| missing_ensurepip(failed.stderr).map(|words| (words, docs_keys::PYTHON_VENV_MISSING)))
        .or_else(|| unreachable_index(failed.stderr).map(|words| (words, docs_keys::PIP_WITHOUT_NETWORK)))
        .or_else(|| missing_module(failed).map(|words| (words, docs_keys::PYTHON_MODULE_MISSING)))?;
    Some(format!("{words} See 'corro docs {key}'."))
}

fn missing_interpreter(failed: FailedProcess<'_>) -> Option<String> {
    let is_missing = |program: &str| failed.stderr.lines().any(|line| is_not_found(line, program));
    let (python, python3) = (is_missing("python"), is_missing("python3"));
    // A toolkit's command takes `python3` if there is no `python`.
    let looked_up = !failed.is_preparation && looks_interpreter_up(failed.spec);
    let missing = match (python, python3) {
        (true, true) => "neither 'python' nor 'python3'",
        (true, false) if looked_up => "neither 'python' nor 'python3'",
        (true, false) => {
            return Some(
                "The node has no program 'python': name 'python3' in the command line and submit the job again."
                    .to_owned(),
            );
        }
        (false, true) => "no program 'python3'",
        (false, false) => return None,
    };
    Some(format!(
        "The node has {missing} in its PATH: install Python 3 on the node's machine, name an interpreter on a mounted \
         share, or use a container image with Python; then submit the job again."
    ))
}

/// Whether a line of a shell, of `env` or of Corro says that `program` does not exist.
fn is_not_found(line: &str, program: &str) -> bool {
    let line = line.trim_end();
    let of_shell = [": command not found", ": not found"]
        .iter()
        .filter_map(|words| line.strip_suffix(words))
        .any(|before| before.rsplit([' ', ':']).next() == Some(program));
    let of_env = (line.starts_with("env: ") || line.contains("/env: "))
        && line.ends_with(": No such file or directory")
        && line.split(['\'', '‘', '’', '"', ' ', ':']).any(|word| word == program);
    of_shell || of_env || line.ends_with(&format!("cannot start {program}: no such program"))
}

/// Whether the job runs a script with the interpreter that is found on the node.
fn looks_interpreter_up(spec: &JobSpec) -> bool {
    let script = |settings: &crate::batchai::ScriptSettings| settings.python_interpreter_path.is_none();
    spec.horovod_settings.as_ref().is_some_and(script)
        || spec.chainer_settings.as_ref().is_some_and(script)
        || spec.py_torch_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec.tensor_flow_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec.caffe2_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec
            .cntk_settings
            .as_ref()
            .is_some_and(|s| s.python_script_file_path.is_some() && s.python_interpreter_path.is_none())
        || spec
            .caffe_settings
            .as_ref()
            .is_some_and(|s| s.python_script_file_path.is_some() && s.python_interpreter_path.is_none())
}

fn missing_ensurepip(stderr: &str) -> Option<String> {
    let of_debian = "because ensurepip is not available";
    let is_missing = modules(stderr).any(|module| module == "ensurepip") || stderr.contains(of_debian);
    is_missing.then(|| {
        "The node's Python cannot make virtual environments with pip: install the package python3-venv on the node's \
         machine ('apt install python3-venv' as root), then submit the job again."
            .to_owned()
    })
}

fn unreachable_index(stderr: &str) -> Option<String> {
    let after = |words: &str| {
        let mut lines = stderr.lines().rev();
        lines.find_map(|line| line.split_once(words)).and_then(|(_, rest)| rest.split_whitespace().next())
    };
    let has_no_connection =
        stderr.contains("Retrying (Retry(total=") || stderr.contains("Failed to establish a new connection");
    let package = after("No matching distribution found for ");
    // Other programs than pip print such lines as well. An index has its packages below /simple/.
    let is_pip = package.is_some() || stderr.contains("/simple/");
    (has_no_connection && is_pip).then(|| {
        let wheels = package.map_or_else(|| "the wheels".to_owned(), |package| format!("the wheels of {package}"));
        format!(
            "The node cannot reach the package index: put {wheels} into a directory of the server's machine and let \
             its operator offer them with 'corro up --wheels DIR', or set https_proxy for the agent; then submit the \
             job again."
        )
    })
}

/// Packages whose names differ from those of their modules.
const PACKAGES: [(&str, &str); 6] = [
    ("PIL", "pillow"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("yaml", "pyyaml"),
];

fn missing_module(failed: FailedProcess<'_>) -> Option<String> {
    let module = modules(failed.stderr).last()?;
    // Python names the first missing part: the package of a module with a dot is installed.
    if module.contains('.') {
        return None;
    }
    let package = PACKAGES.iter().find(|(name, _)| *name == module).map_or(module, |(_, package)| package);
    let install = format!("pip install {package}");
    let how = match &failed.spec.job_preparation {
        Some(_) => format!("add '{install}' to jobPreparation.commandLine in the job file"),
        None => format!(r#"add "jobPreparation": {{"commandLine": "{install}"}} to the job file"#),
    };
    Some(format!(
        "Python found no module '{module}': to install it for this job, {how}. If it is a file of your own, put it \
         beside the script."
    ))
}

/// Names in `No module named …` errors. Python 2 and `python -m` write them without quotes.
fn modules(stderr: &str) -> impl Iterator<Item = &str> {
    stderr.lines().filter_map(|line| {
        let (before, rest) = line.split_once("No module named ")?;
        let name = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split('\'').next()?,
            None => rest.split_whitespace().next()?,
        };
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
        (before.ends_with(": ") && is_name).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check_job(settings: Value, is_preparation: bool, stderr: &str, expected: Option<&str>) {
        let mut spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x"});
        spec.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        let spec: JobSpec = serde_json::from_value(spec).expect("a job");
        let found = remedy(FailedProcess { spec: &spec, is_preparation, stderr });
        match expected {
            Some(part) => assert!(found.as_ref().is_some_and(|found| found.contains(part)), "{stderr}: {found:?}"),
            None => assert_eq!(found, None, "{stderr}"),
        }
    }

    fn check(stderr: &str, expected: Option<&str>) {
        check_job(json!({"customToolkitSettings": {"commandLine": "python x"}}), false, stderr, expected);
    }

    #[test]
    fn a_missing_module_is_installed_in_the_preparation() {
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import x\n";
        let with = |line: &str| format!("{traceback}{line}");
        check(
            &with("ModuleNotFoundError: No module named 'keras'"),
            Some(r#"add "jobPreparation": {"commandLine": "pip install keras"} to the job file."#),
        );
        check(&with("ModuleNotFoundError: No module named 'sklearn'"), Some("pip install scikit-learn\""));
        check(&with("ImportError: No module named keras"), Some("pip install keras\""));
        check("/usr/bin/python3: No module named pytest", Some("pip install pytest\""));
        check(&with("ModuleNotFoundError: No module named 'a'; 'a' is not a package"), Some("pip install a\""));
        check(&with("ModuleNotFoundError: No module named 'keras.utils.np_utils'"), None);
        check(&with("ModuleNotFoundError: No module named 'x; rm -rf /'"), None);
        check(&with("ModuleNotFoundError: No module named '$(id)'"), None);
        check_job(
            json!({"jobPreparation": {"commandLine": "pip install horovod"}}),
            false,
            "ModuleNotFoundError: No module named 'keras'",
            Some("add 'pip install keras' to jobPreparation.commandLine in the job file."),
        );
        check("ModuleNotFoundError: No module named 'keras'", Some("See 'corro docs python-module-missing'."));
    }

    #[test]
    fn a_python_without_ensurepip_needs_a_package() {
        let expected = Some("install the package python3-venv on the node's machine");
        check("/jobs/w/e/j/.venv/bin/python: No module named ensurepip", expected);
        check(
            "The virtual environment was not created successfully because ensurepip is not available.  On \
             Debian/Ubuntu\nsystems, you need to install the python3-venv package",
            expected,
        );
    }

    #[test]
    fn an_index_without_a_network_is_replaced_by_wheels() {
        let retry = "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after \
                     connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object \
                     at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': \
                     /simple/keras/";
        check(retry, Some("put the wheels into a directory"));
        let failed = "ERROR: Could not find a version that satisfies the requirement keras (from versions: none)\n\
                      ERROR: No matching distribution found for keras";
        check(&format!("{retry}\n{failed}"), Some("put the wheels of keras into a directory"));
        check(&format!("{retry}\n{failed}"), Some("'corro up --wheels DIR'"));
        check(failed, None);
        check("requests.exceptions.ConnectionError: Failed to establish a new connection: [Errno 111]", None);
    }

    #[test]
    fn python3_is_named_where_python_is_missing() {
        let python3 = Some("name 'python3' in the command line");
        check("/bin/sh: 1: python: not found", python3);
        check("bash: line 1: python: command not found", python3);
        check("env: ‘python’: No such file or directory", python3);
        check("/usr/bin/env: 'python': No such file or directory", python3);
        check("corro: cannot start python: no such program", python3);
        check("bash: ipython: command not found", None);
        check("bash: line 1: python3: command not found", Some("The node has no program 'python3' in its PATH"));
        let neither = Some("The node has neither 'python' nor 'python3' in its PATH");
        check("sh: python3: not found\nsh: python: not found", neither);
        let toolkit = |more: Value| {
            let mut settings = json!({"pythonScriptFilePath": "a.py"});
            settings.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            json!({"horovodSettings": settings})
        };
        check_job(toolkit(json!({})), false, "bash: line 1: python: command not found", neither);
        check_job(toolkit(json!({})), true, "bash: line 1: python: command not found", python3);
        let named = toolkit(json!({"pythonInterpreterPath": "python"}));
        check_job(named, false, "bash: line 1: python: command not found", python3);
    }
}
