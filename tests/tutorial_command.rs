//! `corro tutorial` and `corro doctor` as a new user runs them: they work, and leave nothing behind however they end.

mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use corro_test_support::skip;

use harness::{Site, signal, wait_for};
use rustix::process::Signal;

/// Directory that must contain everything the tutorial creates, and be empty afterwards.
struct ScratchDir {
    dir: tempfile::TempDir,
}

impl ScratchDir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.arg(word).stdin(Stdio::null()).env("TMPDIR", self.dir.path()).env("HOME", self.dir.path());
        command.env("CORRO_CONFIG_DIR", self.dir.path().join("config"));
        command
    }

    /// Whether nothing of it is on the disk, and no process works in it.
    fn is_clean(&self) -> bool {
        let files = std::fs::read_dir(self.dir.path()).expect("it is there").count();
        files == 0 && self.processes().is_empty()
    }

    fn processes(&self) -> Vec<String> {
        let marker = self.dir.path().to_str().expect("text").as_bytes();
        let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = pids.filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.windows(marker.len()).any(|window| window == marker) && harness::is_alive(*pid)
        });
        ours.map(|pid| format!("{pid}")).collect()
    }

    fn begin(&self) -> Child {
        self.command("tutorial").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
    }
}

#[test]
fn the_tutorial_runs_to_its_end_and_cleans_up() {
    let scratch = ScratchDir::new();
    let output = scratch.command("tutorial").arg("--quick").output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for text in [
        "=== 7.",
        "$ corro batchai job file stream",
        "400 train samples",
        "Epoch 1/4",
        " - val_acc: ",
        "Saved trained model at ",
        "Test accuracy: ",
        "\"name\": \"keras_cifar10_trained_model.h5\"",
        "4 ranks trained it together",
        "Done in",
    ] {
        assert!(out.contains(text), "{text:?} in {out}");
    }
    let accuracy = out.split("The model classifies ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    assert!(accuracy.parse::<f32>().expect("a number") > 50.0, "far better than chance: {accuracy}");
    assert!(scratch.is_clean(), "{:?}", scratch.processes());
}

#[test]
fn the_whole_tutorial_asks_for_its_images_before_anything_is_started() {
    let scratch = ScratchDir::new();
    for (arguments, text) in [
        (&["--full"][..], "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html"),
        (&["--full", "--data", "nowhere"], "nowhere: expected data_batch_1.bin"),
        (&["--full", "--quick"], "cannot be used with"),
    ] {
        let output = scratch.command("tutorial").args(arguments).output().expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(text), "{text:?} in {err}");
        assert!(output.stdout.is_empty() && scratch.is_clean(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_tutorial_that_is_stopped_leaves_nothing_behind() {
    for (how, when) in [(Signal::INT, "cluster create"), (Signal::TERM, "Epoch 1/"), (Signal::HUP, "cluster create")] {
        let scratch = ScratchDir::new();
        let mut tutorial = scratch.begin();
        let mut lines = BufReader::new(tutorial.stdout.take().expect("it is piped")).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(when))).expect("it gets there").ok();
        signal(tutorial.id(), how);
        std::thread::spawn(move || lines.for_each(drop));
        wait_for("the tutorial's end", || tutorial.try_wait().is_ok_and(|status| status.is_some()));
        wait_for(&format!("a clean directory after {how:?}"), || scratch.is_clean());
    }
}

#[test]
fn a_reader_who_goes_away_ends_the_tutorial() {
    let scratch = ScratchDir::new();
    let mut tutorial = scratch.begin();
    let mut lines = BufReader::new(tutorial.stdout.take().expect("it is piped")).lines();
    lines.next().expect("a first line").expect("text");
    drop(lines);
    wait_for("the tutorial's end", || tutorial.try_wait().is_ok_and(|status| status.is_some()));
    assert_eq!(tutorial.wait().expect("it ended").code(), Some(0));
    wait_for("a clean directory", || scratch.is_clean());
}

#[test]
fn the_doctor_looks_at_the_machine_in_plain_words() {
    let scratch = ScratchDir::new();
    let output = scratch.command("doctor").output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}");
    for word in ["cores", "memory", "GPUs", "containers", "disk", "port", "kernel"] {
        assert!(out.contains(word), "{word} in {out}");
    }
    // Enforceable isolation features, each in a line with its consequence.
    let isolation = [
        "user",
        "user ns",
        "mount ns",
        "pid ns",
        "ipc ns",
        "isolation",
        "settings",
        "memory limit",
        "cpu limit",
        "pids limit",
    ];
    for what in isolation.into_iter().chain(["openat2", "FUSE"]) {
        let line = out.lines().find(|line| line.get(6..).is_some_and(|rest| rest.starts_with(&format!("{what} "))));
        let line = line.unwrap_or_else(|| panic!("no line about {what} in {out}"));
        assert!(["ok  ", "note"].iter().any(|mark| line.starts_with(mark)) && line.len() > 40, "{line}");
    }
    assert!(scratch.is_clean(), "it leaves nothing behind");
}

/// Without namespaces the doctor reports it, with the consequence for jobs.
#[test]
fn the_doctor_reports_when_jobs_cannot_be_isolated() {
    let scratch = ScratchDir::new();
    let doctor = scratch.command("doctor");
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut without = Command::new("unshare");
    without.args(["-Ur", "sh", "-c", script]).arg(doctor.get_program()).args(doctor.get_args());
    for (name, value) in doctor.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        without.env(name, value);
    }
    let Ok(output) = without.output() else {
        skip::missing_component("no `unshare` on this machine");
        return;
    };
    let out = String::from_utf8_lossy(&output.stdout);
    if out.is_empty() {
        skip::unsupported_machine("this machine allows no namespaces in which they could be forbidden");
        return;
    }
    let line = out.lines().find(|line| line.starts_with("note  isolation ")).unwrap_or_else(|| panic!("{out}"));
    assert!(line.contains("IsolationFailed") && line.contains("user.max_user_namespaces"), "{line}");
    assert!(out.lines().any(|line| line.starts_with("note  user ns ")), "{out}");
}

#[test]
fn a_second_server_leaves_the_profile_of_the_first_alone() {
    let site = Site::start();
    site.corro("group create -n mine -l eastus").ok();
    let other = site.path().join("other");
    let mut second = site.command("corro");
    second.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(&other).stdout(Stdio::piped());
    let mut second = second.spawn().expect("it starts");
    let mut lines = BufReader::new(second.stdout.take().expect("it is piped")).lines();
    let hint = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("CORRO_CONFIG_DIR")));
    assert!(hint.is_some(), "it says how to reach it");
    assert_eq!(site.corro("group list --query [].name -o tsv").ok().stdout, "mine\n");
    let mut there = site.command("corro");
    let there = there.env("CORRO_CONFIG_DIR", &other).args(["group", "list", "-o", "tsv"]).output().expect("it runs");
    assert!(there.status.success() && there.stdout.is_empty(), "the other server answers, and has no groups");
    signal(second.id(), Signal::INT);
    wait_for("its end", || second.try_wait().is_ok_and(|status| status.is_some()));
    site.corro("group show -n mine").ok();
}
