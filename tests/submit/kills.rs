//! Kills in the middle of a submission and of a download: nothing is lost, nothing runs twice.

use crate::harness::{CommandOutput, signal, wait_for};
use crate::project::ProjectSite;
use rustix::process::Signal;

/// Enough files that a submission is interrupted while it sends them.
const N_FILES: usize = 400;

fn large_project() -> ProjectSite {
    let project = ProjectSite::new(&[("count.sh", "ls parts | wc -l\n")]);
    for i in 0..N_FILES {
        project.write(&format!("parts/{i}.txt"), &format!("part {i}"));
    }
    project
}

const SUBMIT: [&str; 5] = ["submit", "--", "sh", "count.sh", "parts"];

#[test]
fn a_restart_of_the_server_while_files_are_sent_is_waited_for() {
    let mut project = large_project();
    let address = project.site.url.strip_prefix("http://").expect("an address").to_owned();
    let child = project.start(&SUBMIT);
    wait_for("some files to arrive", || project.files_on_share("count-1") > 10);
    project.site.kill_server();
    let received = project.files_on_share("count-1");
    assert!(received < N_FILES, "the server was killed too late: all {received} files had arrived");
    project.site.up_at(&address);
    let ended = CommandOutput::from(child.wait_with_output().expect("it ends")).ok();
    assert_eq!(ended.stdout.trim(), N_FILES.to_string(), "{}", ended.stderr);
    assert!(ended.stderr.contains("the server does not answer; trying again"), "{}", ended.stderr);
    let jobs = project.jobs();
    assert_eq!(jobs.len(), 1, "one submission is one job: {jobs:?}");
}

#[test]
fn a_restart_of_the_server_while_the_job_runs_is_waited_for() {
    let mut project = ProjectSite::new(&[("count.sh", "for i in $(seq 1 40); do echo $i; sleep 0.1; done\n")]);
    let address = project.site.url.strip_prefix("http://").expect("an address").to_owned();
    let child = project.start(&["submit", "--", "sh", "count.sh"]);
    wait_for("some output", || project.files_on_share("count-1/.corro/logs") > 0);
    project.site.kill_server();
    project.site.up_at(&address);
    let ended = CommandOutput::from(child.wait_with_output().expect("it ends")).ok();
    let expected: String = (1..=40).map(|i| format!("{i}\n")).collect();
    assert_eq!(ended.stdout, expected, "{}", ended.stderr);
    assert_eq!(project.jobs().len(), 1);
}

#[test]
fn a_killed_client_leaves_no_job_and_the_next_one_makes_one() {
    let project = large_project();
    let mut child = project.start(&SUBMIT);
    wait_for("some files to arrive", || project.files_on_share("count-1") > 10);
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert!(project.jobs().is_empty(), "the files were not complete: {:?}", project.jobs());
    let ended = project.corro(&SUBMIT).ok();
    assert_eq!(ended.stdout.trim(), N_FILES.to_string());
    assert_eq!(project.jobs().len(), 1);
}

#[test]
fn ctrl_c_while_files_are_sent_leaves_nothing() {
    let project = large_project();
    let child = project.start(&SUBMIT);
    wait_for("some files to arrive", || project.files_on_share("count-1") > 10);
    signal(child.id(), Signal::INT);
    CommandOutput::from(child.wait_with_output().expect("it ends")).fails(130, &["interrupted"]);
    assert!(project.jobs().is_empty());
    assert!(!project.experiment_directory().join("count-1").exists(), "the directory of the job is removed");
}

#[test]
fn a_killed_fetch_is_repeated_and_complete() {
    let project = ProjectSite::new(&[("make.sh", "for i in $(seq 1 400); do head -c 20000 /dev/zero >$i.bin; done\n")]);
    project.corro(&["submit", "--", "sh", "make.sh"]).ok();
    let words = ["fetch", "make-1", "-g", "default", "-w", "default", "-e", "cifar", "--to", "got"];
    let fetched = || std::fs::read_dir(project.dir().join("got")).into_iter().flatten().count();
    let mut child = project.start(&words);
    wait_for("some files to be there", || fetched() > 20);
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert!(fetched() < 401, "it was killed too late");
    project.corro(&words).ok();
    for i in 1..=400 {
        let size = std::fs::metadata(project.dir().join(format!("got/{i}.bin"))).map(|file| file.len());
        assert_eq!(size.ok(), Some(20000), "{i}.bin");
    }
}
