//! Python in jobs: packages installed by a preparation are private to the job, and `pip` finds the site's wheels on every node.

use std::path::Path;
use std::process::Command;

use corro_test_support::skip;

use crate::harness::host::python;
use crate::harness::{Site, http};
use serde_json::{Value, json};

/// A wheel of a package that prints its version.
fn make_wheel(directory: &Path, version: &str) {
    let script = r#"
import sys, zipfile
directory, version = sys.argv[1:]
info = "corro_probe-%s.dist-info/" % version
with zipfile.ZipFile("%s/corro_probe-%s-py3-none-any.whl" % (directory, version), "w") as wheel:
    wheel.writestr("corro_probe.py", "version = %r\n" % version)
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: corro-probe\nVersion: %s\n" % version)
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "corro_probe.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (info, info, info))
"#;
    let python = python().expect("asked before");
    let made = Command::new(python).args(["-c", script]).arg(directory).arg(version).output().expect("python runs");
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
