//! Elastic jobs with real servers, agents and processes: they start with what is free, grow, give nodes back, and survive killed
//! processes, agents and servers. Most processes only speak the protocol (`member.py`); the last test trains with the engine.

mod harness;

use std::path::Path;

use harness::fault_injection::SHARE;
use harness::logs::wait_at;
use harness::{IN_WORKSPACE, Site, is_alive, signal, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A member of a generation, in the order of ranks.
#[derive(Clone, Debug, PartialEq)]
struct Member {
    process: u64,
    node: String,
    pid: u32,
}

/// Submits a job of `member.py` with a minimum, the number asked for, and a maximum of nodes.
fn submit(site: &Site, name: &str, counts: (usize, usize, usize)) {
    submit_to(site, "nc6cluster", name, counts);
}

fn submit_to(site: &Site, cluster: &str, name: &str, (min, asked, max): (usize, usize, usize)) {
    let script = include_str!("elastic_jobs/member.py");
    std::fs::write(site.share().join("member.py"), script).expect("the share is on this disk");
    let settings = json!({"horovodSettings": {
        "pythonScriptFilePath": format!("{SHARE}/member.py"), "commandLineArgs": SHARE
    }});
    let elastic = json!({"elastic": {"minNodeCount": min, "maxNodeCount": max}});
    site.write(&format!("{name}.json"), site.job_json(asked, settings, elastic).to_string());
    let at = format!("{IN_WORKSPACE} -e cifar -c {cluster} -n {name} -f {name}.json");
    site.corro(&format!("batchai job create {at} --storage-account-name mystorageaccount")).ok();
}

/// The last generation all of whose members met, and its members.
fn last_generation(share: &Path) -> Option<(u64, Vec<Member>)> {
    let generations = std::fs::read_dir(share.join("generations")).ok()?.flatten();
    let last = generations.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max()?;
    let member = |rank: usize| {
        let text = std::fs::read_to_string(share.join(format!("generations/{last}/{rank}"))).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let member = Member { process: words[1].parse().ok()?, node: words[2].to_owned(), pid: words[3].parse().ok()? };
        Some((words[0].parse::<usize>().ok()?, member))
    };
    let (size, _) = member(0)?;
    let members: Option<Vec<_>> = (0..size).map(|rank| Some(member(rank)?.1)).collect();
    Some((last, members?))
}

/// Waits for a generation after `after` with this many members.
fn wait_for_size(site: &Site, after: u64, size: usize) -> (u64, Vec<Member>) {
    let mut found = None;
    wait_for(&format!("{size} members after generation {after}"), || {
        found = last_generation(&site.share()).filter(|(last, members)| *last > after && members.len() == size);
        found.is_some()
    });
    found.expect("it was waited for")
}

fn finish(site: &Site, job: &str) -> Value {
    std::fs::write(site.share().join("finish"), "").expect("the share is on this disk");
    let ended = site.wait_for_end(job);
    assert_eq!(ended["executionState"], "succeeded", "{ended:#}");
    wait_for("no process to be left", || site.node_processes().is_empty());
    ended
}

/// Numbers of nodes, each with the code of its reason.
fn sizes(job: &Value) -> Vec<(u64, String)> {
    let changes = job["sizeChanges"].as_array().cloned().unwrap_or_default();
    let size = |change: &Value| Some((change["nodeCount"].as_u64()?, change["reason"]["code"].as_str()?.to_owned()));
    changes.iter().filter_map(size).collect()
}

fn agent_of(site: &Site, node: &str) -> u32 {
    let agents = site.agents();
    agents.iter().find(|(id, _)| id == node).map(|(_, pid)| *pid).unwrap_or_else(|| panic!("{node}: {agents:?}"))
}

#[test]
fn an_elastic_job_takes_idle_nodes_and_gives_them_back_to_a_job_that_waits() {
    let site = Site::start();
    site.prepare(3);
    submit(&site, "train", (1, 2, 3));
    let (first, members) = wait_for_size(&site, 0, 3);
    let script = format!("touch {SHARE}/other-$RANK; {}", wait_at("go"));
    site.submit_ranks("other", 2, &script);
    let (second, left) = wait_for_size(&site, first, 1);
    // Who computed goes on, and so the first rank has the state.
    assert!(members.contains(&left[0]), "{left:?}");
    wait_for("the other job's ranks", || (0..2).all(|rank| site.share().join(format!("other-{rank}")).exists()));
    let why = site.corro(&format!("job why train {IN_WORKSPACE} -e cifar")).ok().stdout;
    assert!(why.contains("from 1 to 3 nodes") && why.contains("on which other can start"), "{why}");
    let show = site.corro(&format!("job show train {IN_WORKSPACE} -e cifar")).ok().stdout;
    assert!(show.contains("1 node (from 1 to 3)") && show.contains("on which other can start"), "{show}");
    site.open_gate("go");
    assert_eq!(site.wait_for_end("other")["executionState"], "succeeded");
    let (_, again) = wait_for_size(&site, second, 3);
    assert_eq!(again[0], left[0]);
    let job = finish(&site, "train");
    let sizes = sizes(&job);
    assert_eq!(sizes.first(), Some(&(3, "Started".to_owned())), "{sizes:?}");
    for (count, code) in [(1, "GaveWay"), (3, "NodesIdle")] {
        assert!(sizes.contains(&(count, code.to_owned())), "{sizes:?}");
    }
    assert_eq!(job["lostAttempts"], Value::Null, "{job:#}");
    let history = site.corro("admin history --kind job.resized").json().to_string();
    assert!(history.contains("GaveWay") && history.contains("NodesIdle"), "{history}");
}

#[test]
fn killed_agents_make_an_elastic_job_smaller_and_replaced_nodes_larger() {
    let site = Site::start();
    site.prepare(3);
    submit(&site, "train", (1, 3, 3));
    let (first, members) = wait_for_size(&site, 0, 3);
    // The node of rank 0, where the ranks met, is as good as any other.
    signal(agent_of(&site, &members[0].node), Signal::KILL);
    let (second, left) = wait_for_size(&site, first, 2);
    assert_eq!(left, members[1..]);
    wait_for("the killed agent's process to end", || !is_alive(members[0].pid));
    let (_, again) = wait_for_size(&site, second, 3);
    assert_eq!(again[..2], left);
    let job = finish(&site, "train");
    assert!(sizes(&job).contains(&(2, "NodeLost".to_owned())), "{:?}", sizes(&job));
    assert_eq!(job["lostAttempts"], Value::Null, "{job:#}");
}

#[test]
fn a_killed_process_is_started_again_on_its_node() {
    let site = Site::start();
    site.prepare(2);
    submit(&site, "train", (1, 2, 2));
    let (first, members) = wait_for_size(&site, 0, 2);
    signal(members[1].pid, Signal::KILL);
    let (_, again) = wait_for_size(&site, first, 2);
    assert_eq!((&again[0], &again[1].node), (&members[0], &members[1].node));
    assert!(again[1].process > 2, "{again:?}");
    let job = finish(&site, "train");
    assert_eq!(sizes(&job), [(2, "Started".to_owned())]);
}

#[test]
fn a_job_that_loses_too_many_nodes_starts_again() {
    let site = Site::start();
    site.prepare(2);
    submit(&site, "train", (2, 2, 2));
    let (_, members) = wait_for_size(&site, 0, 2);
    signal(agent_of(&site, &members[1].node), Signal::KILL);
    wait_for("the second attempt", || site.job("train")["lostAttempts"][0]["reason"]["code"] == "NodeLost");
    std::fs::remove_dir_all(site.share().join("generations")).expect("the first attempt is over");
    wait_for_size(&site, 0, 2);
    finish(&site, "train");
}

#[test]
fn a_server_killed_during_a_change_goes_on_where_it_was() {
    let mut site = Site::start();
    site.prepare(3);
    submit(&site, "train", (1, 3, 3));
    let (first, members) = wait_for_size(&site, 0, 3);
    signal(agent_of(&site, &members[1].node), Signal::KILL);
    site.kill_server();
    assert!(is_alive(members[0].pid) && is_alive(members[2].pid), "a generation goes on without a server");
    site.up();
    let (second, left) = wait_for_size(&site, first, 2);
    assert_eq!(left, [members[0].clone(), members[2].clone()]);
    // Once more while a new node joins.
    site.kill_server();
    site.up();
    let (_, again) = wait_for_size(&site, second, 3);
    assert_eq!(again[..2], left);
    let job = finish(&site, "train");
    assert_eq!(job["lostAttempts"], Value::Null, "{job:#}");
}

#[test]
fn a_smaller_cluster_makes_its_elastic_job_smaller() {
    let site = Site::start();
    site.prepare(3);
    submit(&site, "train", (1, 3, 3));
    let (first, members) = wait_for_size(&site, 0, 3);
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster -t 2")).ok();
    let (_, left) = wait_for_size(&site, first, 2);
    assert!(members.contains(&left[0]) && members.contains(&left[1]), "{left:?}");
    wait_for("a cluster of two nodes", || site.agents().len() == 2);
    let job = finish(&site, "train");
    assert!(sizes(&job).contains(&(2, "ClusterResized".to_owned())), "{:?}", sizes(&job));
    assert_eq!(job["lostAttempts"], Value::Null, "{job:#}");
}

#[test]
fn a_preempted_node_is_a_change_of_size() {
    let site = Site::start_with(&["--no-containers", "--preemption-grace", "40"]);
    site.prepare(0);
    let size = "-s Standard_D1 -u me -p not-a-secret";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n low {size} --vm-priority lowpriority -t 2")).ok();
    let idle = || {
        let shown = site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n low")).json();
        shown["nodeStateCounts"]["idleNodeCount"] == 2
    };
    wait_for("two idle nodes", idle);
    submit_to(&site, "low", "train", (1, 2, 2));
    let (first, members) = wait_for_size(&site, 0, 2);
    site.corro(&format!("node preempt {}", members[1].node)).ok();
    let (second, left) = wait_for_size(&site, first, 1);
    assert_eq!(left, members[..1]);
    // The node is replaced.
    let (_, again) = wait_for_size(&site, second, 2);
    assert_ne!(again[1].node, members[1].node);
    let job = finish(&site, "train");
    assert!(sizes(&job).contains(&(1, "NodePreempted".to_owned())), "{:?}", sizes(&job));
    assert_eq!(job["lostAttempts"], Value::Null, "{job:#}");
}

/// The process of `corro train` with this number in its job.
fn training_process(site: &Site, number: u64) -> Option<u32> {
    let variable = format!("CORRO_ELASTIC_PROCESS={number}");
    let has_number = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    site.node_processes().into_iter().find(has_number)
}

#[test]
fn a_training_goes_on_through_deaths_and_changes_of_size() {
    let site = Site::start();
    site.prepare(3);
    let training = json!({"epochs": 100_000, "batch": 8, "synthetic": {"train": 96, "test": 16}});
    std::fs::write(site.share().join("settings.json"), training.to_string()).expect("the share is on this disk");
    let corro = site.command("corro").get_program().to_string_lossy().into_owned();
    let settings = json!({"horovodSettings": {
        "pythonScriptFilePath": format!("{SHARE}/settings.json"),
        "pythonInterpreterPath": format!("{corro} train"),
        "commandLineArgs": format!("--dir={SHARE}/out"),
    }});
    let elastic = json!({"elastic": {"minNodeCount": 1, "maxNodeCount": 3}});
    site.write("train.json", site.job_json(2, settings, elastic).to_string());
    let at = format!("{IN_WORKSPACE} -e cifar -c nc6cluster -n train -f train.json");
    site.corro(&format!("batchai job create {at} --storage-account-name mystorageaccount")).ok();
    let mut after = 0;
    let mut wait_for_ranks = |ranks: &str| {
        wait_for(&format!("{ranks} after generation {after}"), || {
            let said = site.log("train", "stdout.txt");
            // Progress bars end with a carriage return.
            let begun = said.split(['\n', '\r']).filter_map(|line| line.strip_prefix("Generation ")?.split_once(": "));
            let found = begun.filter(|(_, size)| size.starts_with(&format!("{ranks} ")));
            let found = found.filter_map(|(number, _)| number.parse::<u64>().ok()).find(|number| *number > after);
            after = found.unwrap_or(after);
            found.is_some()
        });
    };
    wait_for_ranks("3 ranks");
    // It is started again at once, so the others may go on without it, or with its successor.
    signal(training_process(&site, 2).expect("it trains"), Signal::KILL);
    wait_for_ranks("3 ranks");
    let agents = site.agents();
    signal(agents[0].1, Signal::KILL);
    wait_for_ranks("2 ranks");
    wait_for_ranks("3 ranks");
    let epochs = || -> Vec<Value> {
        let metrics = std::fs::read_to_string(site.share().join("out/metrics.jsonl")).unwrap_or_default();
        let line = |line| serde_json::from_str::<Value>(line).expect("JSON")["epoch"].clone();
        // The last line may not be complete yet.
        metrics.rsplit_once('\n').map_or("", |(complete, _)| complete).lines().map(line).collect()
    };
    let before = epochs().len();
    wait_for("further epochs", || epochs().len() > before);
    site.corro(&format!("job stop train {IN_WORKSPACE} -e cifar")).ok();
    let ended = site.wait_for_end("train");
    assert_eq!(ended["lostAttempts"], Value::Null, "{ended:#}");
    // Every epoch ended once, in order, whoever was rank 0.
    let epochs = epochs();
    assert_eq!(epochs, (1..=epochs.len()).map(Value::from).collect::<Vec<_>>());
    wait_for("no process to be left", || site.node_processes().is_empty());
}
