//! Checkpoints under failures: a full disk, and a process killed while it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use corro_test_support::skip;
use corro_trainer::network::Weights;
use corro_trainer::save::{Checkpoint, Schedule, checkpoint, keras};

const SCHEDULE: Schedule = Schedule { rate: 1e-4, decay: 1e-6 };

fn weights_of(value: f32) -> Weights {
    let mut weights = Weights::zeros();
    weights.slices_mut().into_iter().for_each(|part| part.fill(value));
    weights
}

fn a_checkpoint(epoch: usize) -> Checkpoint {
    let precision = "f32".to_owned();
    let (weights, accumulators) = (weights_of(epoch as f32), weights_of(0.5));
    let training = String::new();
    Checkpoint {
        weights,
        accumulators,
        iterations: 1,
        epoch,
        seed: 1,
        ranks: 1,
        precision,
        schedule: SCHEDULE,
        training,
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// Runs this test again in a child process, which gets the directory in its environment.
fn rerun(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command.args(["--exact", test, "--nocapture"]).env(TEST_DIR, directory).stdin(Stdio::null());
    command
}

const TEST_DIR: &str = "CORRO_TEST_INSIDE";

fn child_directory() -> Option<PathBuf> {
    std::env::var_os(TEST_DIR).map(PathBuf::from)
}

#[test]
fn a_full_disk_loses_no_existing_file() {
    if let Some(directory) = child_directory() {
        return on_a_small_disk(&directory);
    }
    let possible = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip::unsupported_machine("this user may not mount a small disk");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let command = rerun("a_full_disk_loses_no_existing_file", directory.path());
    let script = "mount -t tmpfs -o size=18m tmpfs \"$1\" && shift && exec \"$@\"";
    let mut wrapped = Command::new("unshare");
    wrapped
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(command.get_program())
        .args(command.get_args());
    let output = wrapped.env(TEST_DIR, directory.path()).output().expect("unshare starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains(PASSED), "{text}");
}

/// The disk has space for a checkpoint of 10 MB and a model of 5 MB, and not for another one of either.
fn on_a_small_disk(directory: &Path) {
    let model = directory.join("model.h5");
    keras::write(&model, &weights_of(1.0), SCHEDULE).expect("room for a model");
    checkpoint::write(directory, &a_checkpoint(1), Some(1)).expect("room for a checkpoint");

    let check = |error: &dyn std::error::Error, name: &str| {
        assert_eq!(error.to_string(), format!("cannot write {}", directory.join(name).display()));
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("No space left on device (os error 28)"));
        assert_eq!(names(directory), ["checkpoint-1.h5", "model.h5"]);
    };
    check(&checkpoint::write(directory, &a_checkpoint(2), Some(1)).expect_err("no room"), "checkpoint-2.h5");
    check(&keras::write(&model, &weights_of(2.0), SCHEDULE).expect_err("no room"), "model.h5");

    assert_eq!(keras::read(&model).expect("the old model"), weights_of(1.0));
    let last = checkpoint::find_latest(directory).expect("they can be listed");
    assert_eq!(last.checkpoint, Some((directory.join("checkpoint-1.h5"), a_checkpoint(1))));
    assert!(last.skipped.is_empty());
    println!("{PASSED}");
}

const PASSED: &str = "all seen on the small disk";

#[test]
fn a_killed_writer_leaves_only_complete_checkpoints() {
    if let Some(directory) = child_directory() {
        for epoch in 1.. {
            checkpoint::write(&directory, &a_checkpoint(epoch), Some(3)).expect("it can be written");
        }
    }
    for n_files in [2, 3, 2, 3] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directory = directory.path();
        let mut writer = rerun("a_killed_writer_leaves_only_complete_checkpoints", directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this executable starts");
        // The last one is usually being written at this time.
        let deadline = Instant::now() + Duration::from_secs(60);
        while names(directory).len() < n_files {
            assert!(Instant::now() < deadline, "there are only {:?}", names(directory));
            assert!(writer.try_wait().expect("a child").is_none(), "the writer ended");
            std::thread::yield_now();
        }
        writer.kill().and_then(|()| writer.wait()).expect("it can be killed");

        let last = checkpoint::find_latest(directory).expect("they can be listed");
        assert!(last.skipped.is_empty(), "{:?}", last.skipped);
        let (_, last) = last.checkpoint.expect("at least one");
        assert_eq!(last, a_checkpoint(last.epoch));
        checkpoint::write(directory, &a_checkpoint(last.epoch + 2), Some(1)).expect("it can be written");
        assert_eq!(names(directory), [format!("checkpoint-{}.h5", last.epoch + 2)]);
    }
}
