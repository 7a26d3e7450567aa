//! Queue order, and jobs that wait or lose their nodes.

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

/// A cluster with one node: all jobs but the first wait.
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

    // A waiting job can be terminated without having run.
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

/// Backfill with two nodes, one of them busy: the head of the queue waits for both, a job that could delay it waits too, and
/// one that cannot goes first.
#[test]
fn a_later_job_starts_first_if_that_delays_nobody_and_all_say_why() {
    let site = Site::start();
    site.prepare(2);
    let submit = |name: &str, nodes: usize, command: &str, limit: &str| {
        let settings = json!({"customToolkitSettings": {"commandLine": command}});
        site.submit_with(name, nodes, settings, json!({"constraints": {"maxWallClockTime": limit}}));
    };
    let why = |name: &str| site.corro(&format!("job why {name} {IN_WORKSPACE} -e cifar")).ok().stdout;
    submit("busy", 1, &wait_at("go"), "PT2H");
    site.wait_for_state("busy", &["running"]);
    submit("big", 2, "true", "PT1H");
    submit("long", 1, "true", "PT3H");
    submit("short", 1, &wait_at("go"), "PT1H");
    let short = site.wait_for_state("short", &["running"]);
    assert_eq!(short["waiting"], Value::Null, "{short}");

    let big = site.job("big");
    let waiting = &big["waiting"];
    assert_eq!((&waiting["reason"], &waiting["position"]), (&"nodesBusy".into(), &1.into()), "{big}");
    assert_eq!((&waiting["estimateBasis"], &waiting["resizeTo"]), (&"limits".into(), &4.into()), "{big}");
    let text = why("big");
    assert!(text.starts_with("The job \"big\" waits: the job is next and needs 2 nodes"), "{text}");
    assert!(text.contains("number 1 in the queue of cluster nc6cluster"), "{text}");
    assert!(text.contains("  - 2 more idle nodes: short ends by ") && text.contains("-t 4'"), "{text}");
    let list = site.corro(&format!("batchai job list {IN_WORKSPACE} -e cifar")).json();
    let positions: Vec<_> =
        list.as_array().expect("jobs").iter().map(|job| job["waiting"]["position"].clone()).collect();
    assert_eq!(positions, [json!(1), Value::Null, json!(2), Value::Null], "big, busy, long, short: {list}");
    assert!(why("busy").starts_with("The job \"busy\" runs on 1 node of cluster nc6cluster"), "{}", why("busy"));
    site.corro(&format!("job why nobody {IN_WORKSPACE} -e cifar")).fails(3, &["nobody"]);

    site.open_gate("go");
    for name in ["busy", "short", "big", "long"] {
        assert_eq!(site.wait_for_end(name)["executionState"], "succeeded");
    }
    let start = |name: &str| site.job(name)["executionInfo"]["startTime"].as_str().expect("a time").to_owned();
    assert!(start("big") <= start("long"), "the first in line was not delayed");
    assert!(why("big").contains("is done: all its processes ended with exit code 0"), "{}", why("big"));
}

/// The running job prints numbered epochs, from which its end and the next start are estimated.
#[test]
fn epochs_of_the_running_job_tell_when_the_next_one_starts() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("train", 1, "for e in $(seq 1 1000); do echo \"Epoch $e/1000\"; sleep 0.2; done");
    site.wait_for_state("train", &["running"]);
    site.submit_custom("next", 1, "true");
    let why = || site.corro(&format!("job why next {IN_WORKSPACE} -e cifar")).ok().stdout;
    wait_for("an estimate by epochs", || site.job("next")["waiting"]["estimateBasis"] == "history");
    let text = why();
    assert!(text.contains("estimated from the epochs of running jobs"), "{text}");
    assert!(text.contains("train ends by ") && text.contains(" (by its epochs at about "), "{text}");
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n train --yes")).ok();
    assert_eq!(site.wait_for_end("next")["executionState"], "succeeded");
}

/// Jobs that end while others start: each end is noticed, made durable and cleaned up, and no job is started again.
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
    // An end that is seen but not yet committed must not make a node drop the task and then start it again.
    assert_eq!(runs, [1; 30]);
}

/// Nodes are removed under a running job; it is requeued, and restarts in the same directory.
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
