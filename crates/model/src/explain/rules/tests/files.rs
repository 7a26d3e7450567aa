//! Files: missing, forbidden, read-only, and a full disk.

use serde_json::json;

use super::*;

#[test]
fn the_script_is_missing() {
    let key = "script-missing";
    let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare";
    let horovod = |path: &str| job().with(json!({"horovodSettings": {"pythonScriptFilePath": path}}));
    let line = "python3: can't open file '/n/jobs/w/e/j/mounts/myshare/trian.py': [Errno 2] No such file or directory";
    horovod(&format!("{share}/trian.py")).check(
        2,
        line,
        key,
        &[
            "The script $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/trian.py does not exist",
            "horovodSettings.pythonScriptFilePath",
        ],
    );
    job().check(2, line, key, &["customToolkitSettings.commandLine"]);
    let files = ["src/trian.py".to_owned()];
    let project = Some(ProjectFiles { root: share.to_owned(), files: files.into() });
    Job { project, ..job() }.check(
        2,
        line,
        key,
        &["The job's files have $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/src/trian.py"],
    );
    // A variable with a mistake is replaced by nothing.
    horovod("$AZ_BATCHAI_JOB_MOUNTROOT/myshare/train.py").check(
        2,
        "python3: can't open file '/myshare/train.py': [Errno 2] No such file or directory",
        key,
        &["no variable $AZ_BATCHAI_JOB_MOUNTROOT", "Write $AZ_BATCHAI_JOB_MOUNT_ROOT instead"],
    );
}

#[test]
fn a_data_file_is_missing() {
    let key = "file-missing";
    let missing = |path: &str| format!("FileNotFoundError: [Errno 2] No such file or directory: '{path}'");
    job().check_raised(
        &missing("data/train.csv"),
        key,
        &["The file data/train.csv does not exist", "$AZ_BATCHAI_JOB_TEMP", "--mount SHARE"],
    );
    let directory = json!({"workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare"});
    job().with(directory).check_raised(
        &missing("a.csv"),
        key,
        &["workingDirectory, which is $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare"],
    );
    job().check_raised(&missing("/home/me/a.csv"), key, &["a path of your own machine"]);
    job().check_raised(&missing("/data/a.csv"), key, &["relativeMountPath"]);
    job().check_raised(&missing("~/a.csv"), key, &["os.path.expanduser"]);
    job().check_raised(
        &missing("$AZ_BATCHAI_INPUT_DATA/a.csv"),
        key,
        &["Nothing replaced the variable $AZ_BATCHAI_INPUT_DATA", "os.environ['AZ_BATCHAI_INPUT_DATA']"],
    );
    job().check_raised(&missing("${DATA}/a.csv"), key, &["the variable $DATA"]);
    let inputs = json!({"inputDirectories": [{"id": "DATA", "path": "x"}],
        "customToolkitSettings": {"commandLine": "python3 a.py --data $AZ_BATCHAI_INPUT_DATE $AZ_BATCHAI_INPUT_DATA"}});
    job().with(inputs).check_raised(
        &missing("/a.csv"),
        key,
        &["no variable $AZ_BATCHAI_INPUT_DATE", "Write $AZ_BATCHAI_INPUT_DATA instead"],
    );
    job().check(1, "cat: data.csv: No such file or directory", key, &["The file data.csv"]);
    job().check(2, "ls: cannot access '/x/y': No such file or directory", key, &["The file /x/y"]);
    job().check(2, "/bin/sh: 1: cd: can't cd to data", key, &["The file data "]);
    job().check(1, "bash: line 1: cd: /x/y: No such file or directory", key, &["The file /x/y"]);
}

#[test]
fn files_that_may_not_be_used() {
    job().check_raised(
        "PermissionError: [Errno 13] Permission denied: '/results/model.pt'",
        "permission-denied",
        &["the path /results/model.pt", "outputDirectories"],
    );
    job().check(
        1,
        "mkdir: cannot create directory ‘/results’: Permission denied",
        "permission-denied",
        &["the path /results"],
    );
    job().check_raised(
        "OSError: [Errno 30] Read-only file system: '/data/cache'",
        "read-only-file-system",
        &["the path /data/cache", "mountOptions"],
    );
    job().check(
        1,
        "touch: cannot touch '/data/x': Read-only file system",
        "read-only-file-system",
        &["the path /data/x"],
    );
}

#[test]
fn a_full_disk_and_too_many_files() {
    job().check_raised(
        "OSError: [Errno 28] No space left on device: '/tmp/model.pt'",
        "job-disk-full",
        &["on the disk at /tmp/model.pt", "'df -h'"],
    );
    job().check_raised("OSError: [Errno 28] No space left on device", "job-disk-full", &["no space left on the disk."]);
    job().check_raised("OSError: [Errno 122] Disk quota exceeded", "job-disk-full", &["--quota"]);
    job().check_raised("OSError: [Errno 24] Too many open files: 'a.jpg'", "too-many-open-files", &["ulimit -n"]);
}
