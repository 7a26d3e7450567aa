//! Command lines: programs, interpreters, arguments.

use serde_json::json;

use super::*;

#[test]
fn a_program_is_not_found() {
    let key = "command-not-found";
    job().check(
        127,
        "bash: line 1: foo: command not found",
        key,
        &["The program foo was not found on the node", "customToolkitSettings.commandLine"],
    );
    job().check(127, "/bin/sh: 1: foo: not found", key, &["The program foo"]);
    job().check(
        127,
        "bash: line 1: /opt/none/python: No such file or directory",
        key,
        &["The program /opt/none/python", "relative path begins at workingDirectory"],
    );
    job().check(127, "corro: cannot start ./a.out: no such program", key, &["The program ./a.out"]);
    job().check(127, "", key, &["The program of the command line was not found"]);
    // A shell goes on after a program that it did not find.
    job().check(1, "bash: line 1: foo: command not found", "", &[]);
    let misspelled = json!({"customToolkitSettings": {"commandLine": "$AZ_BATCHAI_JOB_MOUNT_ROT/myshare/run.sh"}});
    job().with(misspelled).check(
        127,
        "bash: line 1: /myshare/run.sh: No such file or directory",
        key,
        &["no variable $AZ_BATCHAI_JOB_MOUNT_ROT", "Write $AZ_BATCHAI_JOB_MOUNT_ROOT instead"],
    );
}

#[test]
fn a_program_cannot_be_run() {
    let key = "command-not-executable";
    job().check(
        126,
        "bash: line 1: ./run.sh: Permission denied",
        key,
        &["./run.sh was found but cannot be run", "chmod +x"],
    );
    job().check(126, "bash: line 1: /x/src: Is a directory", key, &["/x/src is a directory"]);
    job().check(126, "", key, &["'bash run.sh'"]);
    job().check(
        126,
        "bash: line 1: ./a.out: cannot execute binary file: Exec format error",
        "wrong-architecture",
        &["'uname -m'"],
    );
    let interpreter = "interpreter-missing";
    job().check(
        126,
        "bash: line 1: ./run.sh: /bin/zsh: bad interpreter: No such file or directory",
        interpreter,
        &["an interpreter /bin/zsh"],
    );
    job().check(
        127,
        "bash: line 1: ./run.sh: cannot execute: required file not found",
        interpreter,
        &["'bash run.sh'"],
    );
    let endings = "windows-line-endings";
    job().check(
        126,
        "bash: line 1: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory",
        endings,
        &["line endings of Windows", "dos2unix"],
    );
    job().check(127, "run.sh: line 2: $'\\r': command not found", endings, &[]);
    job().check(127, "/usr/bin/env: ‘python3\\r’: No such file or directory\n/usr/bin/env: use -[v]S to pass options in shebang lines", endings, &[]);
}

#[test]
fn arguments_are_refused() {
    let key = "arguments-wrong";
    let usage = "usage: train.py [-h] [--epochs EPOCHS] --data DATA\n";
    let horovod = || job().with(json!({"horovodSettings": {"pythonScriptFilePath": "a.py"}}));
    horovod().check(
        2,
        &format!("{usage}train.py: error: unrecognized arguments: --epoch 3"),
        key,
        &["does not know these arguments: --epoch 3.", "horovodSettings.commandLineArgs"],
    );
    job().check(
        2,
        &format!("{usage}train.py: error: the following arguments are required: --data"),
        key,
        &["the following arguments are required: --data", "customToolkitSettings.commandLine"],
    );
    job().check(
        2,
        &format!("{usage}train.py: error: argument --epochs: invalid int value: 'three'"),
        key,
        &["invalid int value: 'three'"],
    );
    job().check(
        2,
        &format!("{usage}train.py: error: unrecognized arguments: --local-rank=0"),
        key,
        &["os.environ['LOCAL_RANK']"],
    );
    job().check(
        2,
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --epoch",
        key,
        &["No such option: --epoch"],
    );
    job().check(
        2,
        "bash: -c: line 1: unexpected EOF while looking for matching `\"'",
        "shell-syntax",
        &["a quote or a bracket has no end"],
    );
}
