//! Wall clock jumps of more than a year on server and nodes under a running job: forward, across a restart of the server, and
//! back.

use serde_json::json;

use super::harness::fake_clock::FakeClock;
use super::harness::{Site, wait_for};
use super::{assert_succeeded, error_of};

fn submit(site: &Site, name: &str, command: &str, limit: &str) {
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    site.submit(name, &site.job_json(1, settings, json!({"constraints": {"maxWallClockTime": limit}}))).ok();
}

/// Numbers and kinds of the events, oldest first.
fn history(site: &Site) -> Vec<(u64, String)> {
    let entries = site.corro("admin history --top 1000").json();
    let entry = |entry: &serde_json::Value| {
        (entry["number"].as_u64().expect("a number"), entry["what"].as_str().expect("a kind").to_owned())
    };
    let mut entries: Vec<_> = entries.as_array().expect("a list").iter().map(entry).collect();
    entries.sort();
    entries
}

#[test]
fn setting_the_clock_ends_no_job_and_prunes_no_history() {
    let Some(clock) = FakeClock::new() else { return };
    let variables = clock.variables();
    let words: Vec<&str> = ["--no-containers"].into_iter().chain(variables.iter().map(String::as_str)).collect();
    let mut site = Site::start_with(&words);
    site.prepare(2);
    let agents: Vec<u32> = site.agents().into_iter().map(|(_, pid)| pid).collect();
    assert!(agents.into_iter().chain([site.up_pid()]).all(FakeClock::is_seen_by), "their clock cannot be set");
    let release = site.path().join("release");
    submit(&site, "long", &format!("echo ready; until test -e {}; do sleep 0.1; done", release.display()), "PT1H");
    wait_for("the job to run", || site.log("long", "stdout.txt") == "ready\n");
    let before = history(&site);

    clock.set("+400d");
    // A whole job is scheduled by that clock, and its commits prune old entries of the history.
    submit(&site, "after", "true", "PT1H");
    assert_succeeded(&site.wait_for_end("after"));
    let after = history(&site);
    assert_eq!(after[..before.len()], before, "nothing is pruned");
    assert!(after.iter().any(|(_, what)| what == "clock.jumped"), "{after:?}");
    assert!(site.up_log().contains("the wall clock was set"), "{}", site.up_log());
    assert_eq!(site.job("long")["executionState"], "running");

    // A restarted server learns of the jump from the history, and of run times from its nodes.
    site.kill_server();
    clock.set("+800d");
    site.up();
    submit(&site, "again", "true", "PT1H");
    assert_succeeded(&site.wait_for_end("again"));
    assert_eq!(history(&site)[..before.len()], before, "nothing is pruned");
    assert_eq!(site.job("long")["executionState"], "running");

    clock.set("+0");
    // A limit that is really reached still ends its job, also when all timestamps are in the future.
    submit(&site, "late", "exec sleep 600", "PT1S");
    let late = site.wait_for_end("late");
    assert_eq!(error_of(&late)["code"], "JobWallClockTimeExceeded", "{late:#}");
    std::fs::write(&release, "").expect("a file");
    let long = site.wait_for_end("long");
    assert_succeeded(&long);
    let info = &long["executionInfo"];
    assert!(info["endTime"].as_str() >= info["startTime"].as_str(), "{long:#}");
}
