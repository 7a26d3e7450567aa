//! Failed installations.

use super::*;

fn preparation() -> Job {
    Job { is_preparation: true, ..job() }
}

#[test]
fn a_python_without_ensurepip_needs_a_package() {
    let says = ["'apt install python3-venv' as root"];
    preparation().check(1, "/jobs/w/e/j/.venv/bin/python: No module named ensurepip", "python-venv-missing", &says);
    preparation().check(
        1,
        "The virtual environment was not created successfully because ensurepip is not available.  On Debian/Ubuntu\nsystems, \
         you need to install the python3-venv package using the following command.",
        "python-venv-missing",
        &says,
    );
}

#[test]
fn an_index_without_a_network_is_replaced_by_wheels() {
    let retry = "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken \
                 by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a \
                 new connection: [Errno -3] Temporary failure in name resolution')': /simple/keras/";
    let failed = "ERROR: Could not find a version that satisfies the requirement keras (from versions: none)\n\
                  ERROR: No matching distribution found for keras";
    preparation().check(1, retry, "pip-without-network", &["Put the wheels into a directory"]);
    preparation().check(
        1,
        &format!("{retry}\n{failed}"),
        "pip-without-network",
        &["Put the wheels of keras into a directory", "'corro up --wheels DIR'"],
    );
    preparation().check(1, failed, "pip-no-version", &["pip found no package keras", "Check the name"]);
    // Other programs have such errors too.
    job().check_raised(
        "requests.exceptions.ConnectionError: Failed to establish a new connection: [Errno 111] Connection refused",
        "connection-refused",
        &[],
    );
}

#[test]
fn requirements_that_cannot_be_met() {
    preparation().check(
        1,
        "ERROR: Could not find a version that satisfies the requirement torch==9.9 (from versions: 2.4.0, 2.4.1, 2.5.1)\n\
         ERROR: No matching distribution found for torch==9.9",
        "pip-no-version",
        &["torch==9.9 does not exist in this version; the newest for the job's Python is 2.5.1"],
    );
    preparation().check(
        1,
        "ERROR: Ignored the following versions that require a different python version: 1.10.0 Requires-Python >=3.8,<3.11\n\
         ERROR: Could not find a version that satisfies the requirement scipy==1.10.0 (from versions: 1.13.0)\n\
         ERROR: No matching distribution found for scipy==1.10.0",
        "pip-no-version",
        &["no version of scipy==1.10.0 for the job's Python"],
    );
    preparation().check(
        1,
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
         please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.\n    \
         six from file:///w/six-1.16.0-py2.py3-none-any.whl:",
        "pip-hash-mismatch",
        &["'pip-compile --generate-hashes'"],
    );
    preparation().check(
        1,
        "ERROR: Cannot install a==1 and b==2 because these package versions have conflicting dependencies.\n\nERROR: \
         ResolutionImpossible: for help visit …",
        "pip-conflict",
        &["contradict"],
    );
    preparation().check(
        1,
        "ERROR: Could not open requirements file: [Errno 2] No such file or directory: 'requirements.txt'",
        "pip-requirements-missing",
        &["pip cannot open requirements.txt", "'corro submit --pip requirements.txt'"],
    );
}

#[test]
fn packages_that_must_be_compiled() {
    for text in [
        "    error: command 'gcc' failed: No such file or directory\n    [end of output]",
        "  error: command 'x86_64-linux-gnu-gcc' failed with exit status 1",
        "src/a.c:1:10: fatal error: Python.h: No such file or directory",
    ] {
        let after = "note: This error originates from a subprocess, and is likely not a problem with pip.\n\
                     ERROR: Failed building wheel for pycocotools\nerror: failed-wheel-build-for-install";
        preparation().check(1, &format!("{text}\n{after}"), "pip-needs-compiler", &["lacks a working compiler"]);
    }
    preparation().check(
        1,
        "error: subprocess-exited-with-error\n\n× Getting requirements to build wheel did not run successfully.",
        "pip-build-failed",
        &["could not build the package from its source"],
    );
    preparation().check(1, "ERROR: Failed building wheel for dlib", "pip-build-failed", &["the package dlib"]);
    preparation().check(
        1,
        "error: externally-managed-environment\n\n× This environment is externally managed",
        "pip-externally-managed",
        &["pythonEnvironment.requirementsFile"],
    );
}

#[test]
fn conda_apt_and_git() {
    preparation().check(
        1,
        "PackagesNotFoundError: The following packages are not available from current channels:\n\n  - pytorch==9.9",
        "conda-failed",
        &["conda-forge"],
    );
    preparation().check(
        1,
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
        "conda-failed",
        &["'conda run -n NAME"],
    );
    for text in [
        "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\nE: Unable to acquire the dpkg \
         frontend lock (/var/lib/dpkg/lock-frontend), are you root?",
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input or configure an \
         askpass helper\nsudo: a password is required",
    ] {
        preparation().check(100, text, "apt-without-root", &["containerSettings"]);
    }
    for text in [
        "fatal: could not read Username for 'https://github.com': No such device or address",
        "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.",
        "Host key verification failed.",
    ] {
        preparation().check(128, text, "git-access-denied", &["--secret GIT_TOKEN"]);
    }
    preparation().check(
        128,
        "fatal: detected dubious ownership in repository at '/x/repo'",
        "git-failed",
        &["safe.directory"],
    );
}
