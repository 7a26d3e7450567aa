//! Server kills: acknowledged state survives, and work on the nodes continues and runs once.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::fault_injection::{SHARE, wait_until_dead, waiting_rank};
use super::harness::{IN_WORKSPACE, Site, signal, wait_for};
use super::{assert_succeeded, detail, error_of, pids};

#[test]
fn acknowledged_requests_survive_kill_9() {
    let mut site = Site::start();
    site.prepare(0);
    let mut acknowledged = BTreeSet::new();
    for round in 0..5 {
        let (workspace, subscription, token) = (site.workspace(), site.subscription(), site.token());
        let (sender, receiver) = std::sync::mpsc::channel();
        // Two writers, so that the kill eventually hits a commit of several requests.
        let writers: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|writer| {
                let (address, token, sender) = (site.address(), token.clone(), sender.clone());
                let (workspace, subscription) = (workspace.clone(), subscription.clone());
                std::thread::spawn(move || {
                    for i in 0.. {
                        let name = format!("{writer}{round}-{i}");
                        let group = format!("{subscription}/resourceGroups/{name}");
                        let job = format!("{workspace}/experiments/cifar/jobs/{name}");
                        let body = json!({"properties": {
                            "nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP",
                            "cluster": {"id": format!("{workspace}/clusters/nc6cluster")},
                            "customToolkitSettings": {"commandLine": "true"}
                        }});
                        for (path, body) in [(group, json!({"location": "eastus"})), (job, body)] {
                            match put(&address, &path, &token, &body) {
                                Some(200..300) => sender.send(path).expect("the test listens"),
                                Some(status) => panic!("{path}: {status}"),
                                None => return,
                            }
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        acknowledged.extend(receiver.iter().take(20));
        site.kill_server();
        // Acknowledged just before the kill.
        acknowledged.extend(receiver.iter());
        for writer in writers {
            writer.join().expect("every response was a success");
        }
        site.up();
        let mut there = BTreeSet::new();
        for list in [format!("{subscription}/resourceGroups"), format!("{workspace}/experiments/cifar/jobs")] {
            let response = site.arm("GET", &list, Value::Null).is(200).json();
            let ids = response["value"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|item| item["id"].as_str().expect("text").to_owned());
            there.extend(ids);
        }
        let lost: Vec<_> = acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and then lost: {lost:?}");
    }
    assert!(acknowledged.len() >= 100, "{}", acknowledged.len());
}

/// The status, or `None` when the server died before it responded.
fn put(address: &str, path: &str, token: &str, body: &Value) -> Option<u16> {
    use std::io::{Read, Write};
    let body = body.to_string();
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let head = format!(
        "PUT {path}?api-version=2018-05-01 HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    response.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_running_job_survives_kill_9_of_the_server() {
    let mut site = Site::start();
    site.prepare(2);
    site.submit_ranks("job1", 2, &waiting_rank("echo \"rank $RANK begins\";"));
    let starts = site.wait_for_starts(2);
    let agents = site.agents();
    assert_eq!(agents.len(), 2);
    for round in 0..3 {
        match round {
            // On another port: the agents must find it there.
            1 => {
                site.kill_server();
                site.up();
            }
            _ => site.crash_and_restart(),
        }
        wait_for("both nodes to be busy again", || site.cluster()["nodeStateCounts"]["runningNodeCount"] == 2);
        assert_eq!(site.job("job1")["executionState"], "running");
    }
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts(), starts, "no rank was started twice");
    assert_eq!(site.agents(), agents, "the nodes are the same");
    let output = site.job_file("job1", "stdout.txt");
    for rank in 0..2 {
        for line in [format!("rank {rank} begins\n"), format!("rank {rank} is done\n")] {
            assert_eq!(output.matches(&line).count(), 1, "{line:?} in {output:?}");
        }
    }
    site.wait_for_nodes(2);
}

/// The kernel sends SIGHUP to stopped processes whose session loses their parent: nodes have their own sessions.
#[test]
fn an_agent_that_stands_still_while_the_server_is_killed_goes_on_with_its_job() {
    let mut site = Site::start();
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(""));
    let start = site.wait_for_starts(1).remove(0);
    let agent = site.agent_of(&start.node);
    signal(agent, Signal::STOP);
    let stands = || std::fs::read_to_string(format!("/proc/{agent}/stat")).is_ok_and(|stat| stat.contains(") T "));
    wait_for("the agent to stand still", stands);
    site.crash_and_restart();
    signal(agent, Signal::CONT);
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts(), [start], "it was started once");
    assert_eq!(site.agents().into_iter().map(|(_, pid)| pid).collect::<Vec<_>>(), [agent], "the node is the same");
}

#[test]
fn a_job_that_ends_while_the_server_is_down_is_reported() {
    let mut site = Site::start();
    site.prepare(2);
    site.submit_ranks("good", 1, &waiting_rank(""));
    site.submit_ranks("bad", 1, &format!("{}; echo 'this is why' >&2; exit 3", waiting_rank("")));
    let starts = site.wait_for_starts(2);
    site.kill_server();
    site.release_ranks();
    wait_until_dead("the ranks", &pids(&starts));
    site.up_at(&site.address());
    assert_succeeded(&site.wait_for_end("good"));
    let bad = site.wait_for_end("bad");
    assert_eq!(bad["executionInfo"]["exitCode"], 3, "{bad:#}");
    assert_eq!(error_of(&bad)["code"], "JobFailed");
    assert_eq!(detail(error_of(&bad), "StdErr"), "this is why");
    assert_eq!(site.starts().len(), 2, "nothing was started twice");
    assert!(site.job_file("good", "stdout.txt").contains("is done"));
}

#[test]
fn a_job_in_preparation_survives_kill_9_of_the_server() {
    let mut site = Site::start();
    site.prepare(2);
    let preparation = format!("echo x >> {SHARE}/prepared; while [ ! -e {SHARE}/ready ]; do sleep 0.1; done");
    let settings = json!({"customMpiSettings": {"commandLine": waiting_rank("")}});
    let job = site.job_json(2, settings, json!({"jobPreparation": {"commandLine": preparation}}));
    site.submit("job1", &job).ok();
    let share = site.share();
    let prepared = || std::fs::read_to_string(share.join("prepared")).unwrap_or_default().len();
    wait_for("both preparations", || prepared() == 4);
    site.kill_server();
    // The nodes finish before the server can send an order.
    std::fs::write(share.join("ready"), "").expect("written");
    site.up_at(&site.address());
    site.wait_for_starts(2);
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 2);
    assert_eq!(prepared(), 4, "prepared once on each node");
}

/// A resize that is reverted while the job stops for it must not turn the stop into success.
#[test]
fn a_job_stopped_for_a_resize_that_was_taken_back_runs_again() {
    let site = Site::start();
    site.prepare(2);
    let obey =
        format!("trap 'echo x >> {SHARE}/signalled; while [ ! -e {SHARE}/end ]; do sleep 0.1; done; exit 1' TERM;");
    site.submit_ranks("job1", 2, &waiting_rank(&obey));
    site.wait_for_starts(2);
    let resize = |target: usize| {
        site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target {target}")).ok()
    };
    resize(0);
    wait_for("both ranks to be signalled", || {
        std::fs::read_to_string(site.share().join("signalled")).is_ok_and(|text| text.len() == 4)
    });
    resize(2);
    std::fs::write(site.share().join("end"), "").expect("written");
    let ended = || site.job("job1")["executionInfo"]["endTime"].is_string();
    wait_for("the second attempt", || site.starts().len() == 4 || ended());
    // All ranks have ended and no stop is requested any more: still no success.
    assert!(!ended(), "{:#}", site.job("job1"));
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
}

#[test]
fn every_rank_of_many_short_jobs_runs_exactly_once() {
    let site = Site::start();
    site.prepare(2);
    let names: Vec<String> = (0..25).map(|i| format!("short{i}")).collect();
    for name in &names {
        site.submit_ranks(name, 2, &format!("echo {name} >> {SHARE}/ran"));
    }
    for name in &names {
        assert_succeeded(&site.wait_for_end(name));
    }
    site.wait_for_nodes(2);
    let ran = std::fs::read_to_string(site.share().join("ran")).expect("they ran");
    for name in &names {
        assert_eq!(ran.lines().filter(|line| line == name).count(), 2, "starts of {name}, which has two ranks");
    }
}
