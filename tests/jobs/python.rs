//! Python in jobs: packages installed by a preparation are private to the job, and `pip` finds the site's wheels on every node.

use std::path::Path;
use std::process::Command;

use corro_test_support::skip;

use crate::harness::host::python;
use crate::harness::{Site, http};
use serde_json::{Value, json};

/// A wheel of a package that prints its version.
fn make_wheel(directory: &Path, version: &str) {
    make_wheel_of(directory, "corro_probe", version, "");
}

/// A wheel of a package, with further lines of its metadata.
fn make_wheel_of(directory: &Path, package: &str, version: &str, metadata: &str) {
    let script = r#"
import sys, zipfile
directory, package, version, more = sys.argv[1:]
info = "%s-%s.dist-info/" % (package, version)
with zipfile.ZipFile("%s/%s-%s-py3-none-any.whl" % (directory, package, version), "w") as wheel:
    wheel.writestr("%s.py" % package, "version = %r\n" % version)
    name = package.replace("_", "-")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s" % (name, version, more))
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "%s.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (package, info, info, info))
"#;
    let python = python().expect("asked before");
    let mut command = Command::new(python);
    let made = command.args(["-c", script]).arg(directory).args([package, version, metadata]).output();
    let made = made.expect("python runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Whether the machine's Python has `pip`. Prints a notice if not.
fn has_pip() -> bool {
    let found = python().is_some_and(|python| {
        Command::new(python).args(["-m", "pip", "--version"]).output().is_ok_and(|asked| asked.status.success())
    });
    if !found {
        skip::missing_component("needs a Python with pip");
    }
    found
}

/// A site whose jobs get the tests' own Python, and a directory of wheels for `--wheels`.
fn site() -> Option<(Site, tempfile::TempDir)> {
    if !has_pip() {
        return None;
    }
    let wheels = tempfile::tempdir().expect("a temporary directory");
    make_wheel(wheels.path(), "1.0");
    std::fs::write(wheels.path().join("secret.txt"), "not a wheel").expect("written");
    let run_python = format!("exec {} \"$@\"", python().expect("it has pip").display());
    let named = wheels.path().to_str().expect("a plain path");
    let site = Site::start_with_tools(&[("python", &run_python)], &["--wheels", named]);
    Some((site, wheels))
}

const SHOW: &str = "python -c 'import corro_probe; print(corro_probe.version)'";

fn submit(site: &Site, name: &str, nodes: usize, preparation: Option<&str>) -> Value {
    let settings = json!({"customMpiSettings": {"commandLine": SHOW}});
    let more = preparation.map_or(json!({}), |line| json!({"jobPreparation": {"commandLine": line}}));
    site.submit_with(name, nodes, settings, more);
    site.wait_for_end(name)
}

#[test]
fn packages_of_a_preparation_are_private_to_the_job() {
    let Some((site, wheels)) = site() else { return };
    site.prepare(2);
    // No index: this machine need not have a network.
    let install = "pip install --no-index corro-probe && echo $VIRTUAL_ENV";
    let job = submit(&site, "probe", 2, Some(install));
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log("probe", "stdout.txt"), "1.0\n1.0\n");
    for (node, _) in site.agents() {
        let said = site.log("probe", &format!("stdout-job_prep-{node}.txt"));
        assert!(said.contains("Successfully installed corro-probe-1.0"), "{said}");
        assert!(said.trim_end().ends_with(&format!("{node}/jobs/batchaidev/cifar/probe/.venv")), "{said}");
        let log = site.log("probe", &format!("execution-{node}.log"));
        assert!(log.contains("corro_probe-1.0-py3-none-any.whl") && !log.contains("secret.txt"), "{log}");
    }

    // Neither the machine nor the next job has it.
    let machine = Command::new(python().expect("it is there")).args(["-c", "import corro_probe"]).output();
    assert!(!machine.expect("python runs").status.success());
    let job = submit(&site, "bare", 2, None);
    assert_eq!(job["executionState"], "failed", "{job}");
    assert!(site.log("bare", "stderr.txt").contains("No module named 'corro_probe'"), "{job}");

    // A newer wheel is available to the next job, and preferred.
    make_wheel(wheels.path(), "2.0");
    let job = submit(&site, "newer", 1, Some("python -m pip install --no-index corro-probe"));
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log("newer", "stdout.txt"), "2.0\n");
}

#[test]
fn an_environment_is_made_once_for_all_nodes_of_a_machine() {
    let Some((site, wheels)) = site() else { return };
    site.prepare(2);
    let write = |text: &str| {
        std::fs::write(site.share().join("cifar/requirements.txt"), text).expect("the share can be written")
    };
    let run = |name: &str, nodes: usize| {
        let settings = json!({"customMpiSettings": {"commandLine": SHOW}});
        let file = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/requirements.txt";
        site.submit_with(name, nodes, settings, json!({"pythonEnvironment": {"requirementsFile": file}}));
        let job = site.wait_for_end(name);
        let logs = site.file_names(name).into_iter().filter(|name| name.starts_with("execution"));
        (job, logs.map(|log| site.log(name, &log)).collect::<String>())
    };
    write("--no-index\ncorro-probe\n");
    let (job, log) = run("env", 2);
    assert_eq!(job["executionState"], "succeeded", "{job}\n{log}");
    assert_eq!(site.log("env", "stdout.txt"), "1.0\n1.0\n");
    assert_eq!(log.matches("Z Made the Python environment ").count(), 1, "{log}");
    assert_eq!(log.matches("Z Using the Python environment ").count(), 1, "{log}");
    let cache = site.data().join("python-environments");
    let n_environments = || {
        let names = std::fs::read_dir(&cache).expect("a cache").map(|entry| entry.expect("listed").file_name());
        names.filter(|name| !name.to_string_lossy().ends_with(".lock")).count()
    };
    assert_eq!(n_environments(), 1);
    let (_, log) = run("again", 1);
    assert!(log.contains("Z Using the Python environment ") && !log.contains("Z Made"), "{log}");
    // Of a newer wheel of the server an environment of its own is made.
    make_wheel(wheels.path(), "2.0");
    let (_, log) = run("newer", 1);
    assert_eq!(site.log("newer", "stdout.txt"), "2.0\n", "{log}");
    assert_eq!(n_environments(), 2);

    write("--no-index\nno-such-package\n");
    let (job, _) = run("fails", 1);
    let error = &job["executionInfo"]["errors"][0];
    assert_eq!(
        (&job["executionState"], &error["code"]),
        (&json!("failed"), &json!("PythonEnvironmentFailed")),
        "{job}"
    );
    assert!(error.to_string().contains("No matching distribution found for no-such-package"), "{error}");
    assert_eq!(n_environments(), 2);
}

#[test]
fn horovod_comes_with_an_environment() {
    let Some((site, wheels)) = site() else { return };
    // Without network it is installed all the same, less what it depends on.
    make_wheel_of(wheels.path(), "horovod", "0.99", "Requires-Dist: no-such-package\n");
    site.prepare(1);
    std::fs::write(site.share().join("cifar/requirements.txt"), "--no-index\ncorro-probe\n").expect("written");
    let show = "python -c 'import corro_probe, horovod; print(corro_probe.version, horovod.version)'";
    let more = json!({
        "pythonEnvironment": {"requirementsFile": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/requirements.txt"},
        // Nothing listens on port 1.
        "environmentVariables": [{"name": "PIP_INDEX_URL", "value": "http://127.0.0.1:1/simple"}],
    });
    site.submit_with("horovod", 1, json!({"customMpiSettings": {"commandLine": show}}), more);
    let job = site.wait_for_end("horovod");
    assert_eq!(job["executionState"], "succeeded", "{job}\n{}", site.log("horovod", "stderr-job_prep.txt"));
    assert_eq!(site.log("horovod", "stdout.txt"), "1.0 0.99\n");
}

#[test]
fn wheels_are_for_nodes_only() {
    let Some((site, _wheels)) = site() else { return };
    for path in ["", "/corro_probe-1.0-py3-none-any.whl", "/secret.txt", "/..%2Fsecret.txt"] {
        let url = format!("{}/corro/v1/wheels{path}", site.url);
        assert_eq!(http::get(&url, &[]).status, 401, "{path}");
        let forged = "Authorization: Bearer node:tvm-1_1-20180718t174802z-p:1:guess";
        assert_eq!(http::get(&url, &[forged]).status, 401, "{path}");
    }
    let refused = site.corro("up --wheels nowhere --data other --listen 127.0.0.1:0");
    refused.fails(2, &["--wheels nowhere", "hint: name the directory that scripts/wheel wrote"]);
}

#[test]
fn a_layer_for_old_scripts_comes_with_a_variable() {
    let Some((site, _wheels)) = site() else { return };
    site.prepare(1);
    let with = |value: &str| json!({"environmentVariables": [{"name": "CORRO_COMPAT", "value": value}]});
    let settings = || {
        let command = "python -c 'import sys; print(\"corro_keras_2018\" in sys.modules)'";
        json!({"customMpiSettings": {"commandLine": command}})
    };
    site.submit_with("old", 1, settings(), with("keras-2018"));
    let job = site.wait_for_end("old");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log("old", "stdout.txt"), "True\n");
    site.submit_with("older", 1, settings(), with("keras-1998"));
    let job = site.wait_for_end("older");
    let error = &job["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "CompatibilityFailed", "{job}");
    assert!(error["details"].to_string().contains("use keras-2018"), "{error}");
}
