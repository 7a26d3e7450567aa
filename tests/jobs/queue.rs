//! Who runs next, and what happens to those who wait or whose nodes are taken away.

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::Value;

/// A cluster with one node: everybody but the first waits.
#[test]
fn first_come_first_served() {
    let site = Site::start();
    site.prepare(1);
    let says = |name: &str| format!("echo {name} >> $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/order");
    site.submit_custom("one", 1, &format!("{}; {}", wait_at("go"), says("one")));
    site.wait_for_state("one", &["running"]);
    for name in ["two", "three", "four"] {
        site.submit_custom(name, 1, &says(name));
    }
    let state = |name: &str| site.job(name)["executionState"].clone();
    assert_eq!(["one", "two", "three", "four"].map(state), ["running", "queued", "queued", "queued"]);
    let queued = site.job("two");
    assert_eq!(queued["executionInfo"], Value::Null, "{queued}");
    let show = format!("batchai job show {IN_WORKSPACE} -e cifar -n two --query executionState");
    assert_eq!(site.corro(&show).ok().stdout, "\"queued\"\n");

    // A job that waits can be ended without having run.
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n three --yes")).ok();
    let job = site.job("three");
    let info = &job["executionInfo"];
    assert_eq!((&job["executionState"], &info["errors"][0]["code"]), (&"failed".into(), &"JobTerminated".into()));
    assert_eq!(info["exitCode"], Value::Null, "{info}");
    assert!(info["startTime"].is_string() && info["endTime"].is_string(), "{info}");
    assert_eq!(site.file_names("three"), [] as [String; 0], "it left no file");

    site.open_gate("go");
    for name in ["one", "two", "four"] {
        assert_eq!(site.wait_for_end(name)["executionState"], "succeeded");
    }
    assert_eq!(site.on_share("order"), "one\ntwo\nfour\n");
    let time = |name: &str, field: &str| site.job(name)["executionInfo"][field].as_str().expect("a time").to_owned();
    assert!(time("two", "startTime") >= time("one", "endTime"), "one job a node at a time");
    assert!(time("four", "startTime") >= time("two", "endTime"), "one job a node at a time");
}

/// Jobs that end while others begin: each end is noticed, made durable and cleaned up after without the job's ever
/// being started again.
#[test]
fn every_job_runs_exactly_once() {
    let site = Site::start();
    site.prepare(4);
    let names: Vec<String> = (0..30).map(|i| format!("quick{i}")).collect();
    let command = format!("{}; echo ran", wait_at("go"));
    for name in &names {
        site.submit_custom(name, 1, &command);
    }
    site.open_gate("go");
    for name in &names {
        assert_eq!(site.wait_for_end(name)["executionState"], "succeeded");
    }
    let runs: Vec<usize> = names.iter().map(|name| site.log(name, "stdout.txt").lines().count()).collect();
    // An end that is seen but not yet committed must not make a node drop the task and then begin it again.
    assert_eq!(runs, [1; 30]);
}

/// Nodes are taken away under a running job; it waits, and runs again from its beginning in the same place.
#[test]
fn a_resize_to_nothing_requeues_the_running_job() {
    let site = Site::start();
    site.prepare(2);
    let command = format!("echo rank $RANK; {}; echo done $RANK", wait_at("go"));
    site.submit_ranks("requeued", 2, &command);
    wait_for("both ranks to begin", || site.log("requeued", "stdout.txt").lines().count() == 2);
    let logs = site.log_dir("requeued");
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target 0")).ok();
    site.wait_for_state("requeued", &["queued"]);
    site.wait_for_nodes(0);
    assert_eq!(site.job("requeued")["executionState"], "queued");
    assert_eq!(site.node_processes(), [] as [u32; 0]);

    site.open_gate("go");
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target 2")).ok();
    let job = site.wait_for_end("requeued");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log_dir("requeued"), logs, "the same directory");
    let text = site.log("requeued", "stdout.txt");
    let count = |line: &str| text.lines().filter(|found| *found == line).count();
    let counts = ["rank 0", "rank 1", "done 0", "done 1"].map(count);
    assert_eq!(counts, [2, 2, 1, 1], "both attempts are in the log: {text}");
    // Node numbers grow over resizes.
    let agents = site.agents();
    assert!(agents.iter().all(|(node, _)| node.contains("_3-") || node.contains("_4-")), "{agents:?}");
}
