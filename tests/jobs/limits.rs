//! Jobs that wait for more nodes than exist, exceed their time limit, or are terminated before they start.

use std::process::Stdio;

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, is_alive, signal, wait_for};
use serde_json::json;

#[test]
fn a_job_larger_than_its_cluster_waits_for_it_to_grow() {
    let site = Site::start();
    site.prepare(1);
    site.submit_ranks("large", 2, "echo rank $RANK of $WORLD_SIZE");
    // A smaller one that came later shows that the cluster has been scheduled.
    site.submit_custom("small", 1, "true");
    assert_eq!(site.wait_for_end("small")["executionState"], "succeeded");
    assert_eq!(site.job("large")["executionState"], "queued");
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target 2")).ok();
    assert_eq!(site.wait_for_end("large")["executionState"], "succeeded");
    assert_eq!(site.log("large", "stdout.txt").lines().count(), 2);

    // An autoscaling cluster starts empty.
    let size = "-s Standard_D1 -u me -p not-a-secret --min 0 --max 2";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n growing {size}")).ok();
    site.write(
        "grow.json",
        site.job_json(2, json!({"customMpiSettings": {"commandLine": "echo grown"}}), json!({})).to_string(),
    );
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e cifar -c growing -n grow -f grow.json --storage-account-name mystorageaccount"
    ))
    .ok();
    assert_eq!(site.wait_for_end("grow")["executionState"], "succeeded");
    assert_eq!(site.log("grow", "stdout.txt"), "grown\ngrown\n");
}

#[test]
fn a_job_ends_when_its_time_is_up_or_while_it_prepares() {
    let site = Site::start();
    site.prepare(2);
    let pid = |name: &str| site.on_share(name).trim().parse::<u32>().ok();
    let write_pid = |name: &str| format!("echo $$ > $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/{name}; exec sleep 600");

    let settings = json!({"customToolkitSettings": {"commandLine": write_pid("slow-pid")}});
    site.submit_with("slow", 1, settings, json!({"constraints": {"maxWallClockTime": "PT1S"}}));
    let job = site.wait_for_end("slow");
    assert_eq!(job["executionState"], "failed", "{job}");
    assert_eq!(job["constraints"]["maxWallClockTime"], "0:00:01");
    let error = &job["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "JobWallClockTimeExceeded", "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("maxWallClockTime")), "{error}");
    assert!(!is_alive(pid("slow-pid").expect("it ran")), "no process outlives its job");

    // One node still prepares, the other is ready.
    let prepare = format!("if mkdir $AZ_BATCHAI_SHARED_JOB_TEMP/first; then {}; fi", write_pid("prep-pid"));
    let settings = json!({"customMpiSettings": {"commandLine": "touch $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/ran"}});
    site.submit_with("preparing", 2, settings, json!({"jobPreparation": {"commandLine": prepare}}));
    wait_for("the preparation to begin", || pid("prep-pid").is_some());
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n preparing --yes")).ok();
    let job = site.job("preparing");
    assert_eq!(job["executionInfo"]["errors"][0]["code"], "JobTerminated", "{job}");
    assert!(!is_alive(pid("prep-pid").expect("it ran")), "no process outlives its job");
    assert!(!site.share().join("cifar/ran").exists());
    site.wait_for_nodes(2);
}

/// Deleting a parent terminates the jobs beneath it.
#[test]
fn deleting_a_parent_ends_its_running_jobs() {
    let site = Site::start();
    site.prepare(2);
    let start = |name: &str| {
        let command = format!("echo $$ > $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/pid-{name}-$RANK; exec sleep 600");
        site.submit_ranks(name, 2, &command);
        let pids = || [0, 1].map(|rank| site.on_share(&format!("pid-{name}-{rank}")).trim().parse::<u32>().ok());
        wait_for("both ranks to begin", || pids().iter().all(Option::is_some));
        pids().map(|pid| pid.expect("both are there"))
    };
    let pids = start("one");
    site.corro(&format!("batchai experiment delete {IN_WORKSPACE} -n cifar --yes")).ok();
    assert_eq!(pids.map(is_alive), [false, false], "no process outlives its experiment");
    site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n one")).fails(3, &["cifar"]);
    site.wait_for_nodes(2);

    site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n cifar")).ok();
    let pids = start("two");
    site.corro("group delete -n batchai.horovod --yes").ok();
    assert_eq!(pids.map(is_alive), [false, false], "no process outlives its group");
    assert_eq!(site.agents(), [], "no node outlives its cluster");
    assert!(!site.share().exists());
    assert_eq!(site.corro("group exists -n batchai.horovod").ok().stdout, "false\n");
}

/// A follower that stops does not affect the job.
#[test]
fn a_stream_can_be_left() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("watched", 1, &format!("echo first; {}; echo last", wait_at("go")));
    let line = format!("batchai job file stream {IN_WORKSPACE} -e cifar -j watched -f stdout.txt");
    let mut command = site.command("corro");
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut stream = command.spawn().expect("it starts");
    let mut first = [0; 6];
    std::io::Read::read_exact(stream.stdout.as_mut().expect("piped"), &mut first)
        .expect("the first bytes come at once");
    assert_eq!(&first, b"first\n");
    signal(stream.id(), rustix::process::Signal::INT);
    assert_eq!(stream.wait().expect("it ends").code(), Some(0));
    assert_eq!(site.job("watched")["executionState"], "running");
    site.open_gate("go");
    assert_eq!(site.wait_for_end("watched")["executionState"], "succeeded");
    assert_eq!(site.stream("watched", "stdout.txt").ok().stdout, "first\nlast\n");
}
