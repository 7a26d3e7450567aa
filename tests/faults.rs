//! Process kills: server, agents, guards, ranks, and all at once. Acknowledged state survives, running work continues or is
//! rerun, and nothing is left behind.

mod harness;

#[path = "faults/agents.rs"]
mod agents;
#[path = "faults/all_processes.rs"]
mod all_processes;
#[path = "faults/clocks.rs"]
mod clocks;
#[path = "faults/ranks.rs"]
mod ranks;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/twins.rs"]
mod twins;

use harness::Site;
use harness::fault_injection::RankStart;
use serde_json::Value;

/// A process that left its rank's session and closed its files, like a daemon that a job leaves.
const DAEMON: &str =
    "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >> $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/daemons;";

fn daemons(site: &Site) -> Vec<u32> {
    let text = std::fs::read_to_string(site.share().join("daemons")).unwrap_or_default();
    text.lines().map(|line| line.parse().expect("a process id")).collect()
}

fn pids(starts: &[RankStart]) -> Vec<u32> {
    starts.iter().map(|start| start.pid).collect()
}

#[track_caller]
fn assert_succeeded(job: &Value) {
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    assert_eq!(job["executionInfo"]["exitCode"], 0, "{job:#}");
}

/// The only error of a failed job.
#[track_caller]
fn error_of(job: &Value) -> &Value {
    assert_eq!(job["executionState"], "failed", "{job:#}");
    assert_eq!(job["executionInfo"]["errors"].as_array().map(Vec::len), Some(1), "{job:#}");
    &job["executionInfo"]["errors"][0]
}

#[track_caller]
fn detail<'a>(error: &'a Value, name: &str) -> &'a str {
    let details = error["details"].as_array().expect("a list").iter();
    let found = details.filter(|detail| detail["name"] == name).filter_map(|detail| detail["value"].as_str()).next();
    found.unwrap_or_else(|| panic!("no {name} in {error:#}"))
}
