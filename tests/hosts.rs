//! Machines that join as hosts: one token and one command, several nodes on each, drained, and upgraded under a running job.
//! Real servers, hosts and agents.

mod harness;

#[path = "hosts/launchers.rs"]
mod launchers;
#[path = "hosts/refusals.rs"]
mod refusals;
#[path = "hosts/volumes.rs"]
mod volumes;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use corro_launch::kill_tagged;
use harness::fault_injection::waiting_rank;
use harness::{Site, signal, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A server that machines join, over TLS.
pub fn server() -> Site {
    let mut site = Site::unstarted(&["--no-containers", "--tls", "--lease", "30"]);
    site.start_server("server", "127.0.0.1:0", "info");
    site
}

pub fn token(site: &Site, more: &str) -> Value {
    site.corro(&format!("host token {more}")).json()
}

/// A host whose nodes end with it, however the test ends.
pub struct JoinedHost {
    pub child: Child,
    dir: PathBuf,
    log: PathBuf,
}

/// As large as two nodes of the harness's cluster.
const TWO_NODES: &str = "--cores 12 --memory 112 --gpus 2 --ports 21000-29999";
const ONE_NODE: &str = "--cores 6 --memory 56 --gpus 1";

impl JoinedHost {
    pub fn start(site: &Site, name: &str, words: &str) -> Self {
        Self::start_as(site, name, words, env!("CARGO_BIN_EXE_corro").into())
    }

    fn start_as(site: &Site, name: &str, words: &str, program: PathBuf) -> Self {
        let (dir, log) = (site.path().join(name), site.path().join(format!("{name}.log")));
        let file = File::options().append(true).create(true).open(&log).expect("a log file");
        let template = site.command("corro");
        let mut command = std::process::Command::new(program);
        command.current_dir(site.path()).stdin(Stdio::null());
        for (name, value) in template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["agent", "join"]).args(words.split_whitespace()).arg("--data").arg(&dir);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("the host starts");
        Self { child, dir, log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().expect("it can be waited for").and_then(|status| status.code())
    }

    /// Its nodes and their process ids.
    fn agents(&self) -> Vec<(String, u32)> {
        let entries = fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        let agent = |entry: fs::DirEntry| {
            let pid = fs::read_to_string(entry.path().join("lock")).ok()?.trim().parse().ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), pid))
        };
        let mut agents: Vec<(String, u32)> = entries.filter_map(agent).collect();
        agents.sort();
        agents
    }
}

impl Drop for JoinedHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (node, pid) in self.agents() {
            if harness::is_alive(pid) {
                signal(pid, Signal::KILL);
            }
            kill_tagged::kill_by_tag_prefix(&format!("{node}/"));
        }
        if std::thread::panicking() {
            eprintln!("the host said: {}", self.log());
        }
    }
}

pub fn hosts(site: &Site) -> Vec<Value> {
    let hosts = site.corro("host list").json();
    hosts.as_array().expect("a list").clone()
}

fn host(site: &Site, name: &str) -> Value {
    site.corro(&format!("host show {name}")).json()
}

#[track_caller]
fn wait_for_host(site: &Site, name: &str, state: &str, nodes: usize) {
    wait_for(&format!("host {name} to be {state} with {nodes} nodes"), || {
        let hosts = hosts(site);
        let found = hosts.iter().find(|host| host["name"] == name);
        found.is_some_and(|host| host["state"] == state && host["nodes"].as_array().map(Vec::len) == Some(nodes))
    });
}

#[test]
fn one_command_makes_a_host_that_carries_several_nodes_and_goes_on() {
    let mut site = server();
    let made = token(&site, "");
    let word = made["token"].as_str().expect("a token").to_owned();
    // The token outlives the server.
    let address = site.address();
    site.kill_server();
    site.start_server("server", &address, "info");
    let url = site.url.clone();
    let first =
        JoinedHost::start(&site, "h", &format!("{url} --token {word} --name gpu-1 --label rack=a1 {TWO_NODES}"));
    wait_for_host(&site, "gpu-1", "ready", 0);
    // The token is not visible: not in the list of processes, not in the host's files, not in the database.
    let about = |name: &str| fs::read(format!("/proc/{}/{name}", first.child.id())).expect("the host lives");
    let secret = word.trim_start_matches("corro-join-").as_bytes();
    let holds = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
    assert!(!holds(&about("cmdline")) && !holds(&about("environ")));
    for file in ["h/host.json", "h/server.json", "data/corro.db", "data/corro.db-wal", "up.log", "h.log"] {
        assert!(!holds(&fs::read(site.path().join(file)).unwrap_or_default()), "{file}");
    }
    let shown = host(&site, "gpu-1");
    assert_eq!((&shown["labels"]["rack"], &shown["free"]["cores"]), (&json!("a1"), &json!(12)), "{shown}");
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    let table = site.corro("host list -o table").ok().stdout;
    assert!(table.contains("gpu-1") && table.contains("12 (12)") && table.contains("rack=a1"), "{table}");

    site.prepare(2);
    wait_for_host(&site, "gpu-1", "ready", 2);
    assert_eq!(host(&site, "gpu-1")["free"]["cores"], 0);
    assert_eq!(first.agents().len(), 2);
    for (_, pid) in first.agents() {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the agent lives");
        assert!(words.contains("\0--ports\x0021000-29999\0"), "what its operator said goes for every node: {words}");
    }
    site.submit_ranks("both", 2, "echo here");
    assert_eq!(site.wait_for_end("both")["executionState"], "succeeded", "{}", first.log());
    assert_eq!(site.log("both", "stdout.txt").matches("here").count(), 2);

    // A second agent in the same directory is refused; the same command again continues.
    let second = site.corro("agent join --data h");
    second.fails(1, &["another agent runs"]);
    let nodes: Vec<String> = first.agents().into_iter().map(|(node, _)| node).collect();
    let mut first = first;
    signal(first.child.id(), Signal::TERM);
    wait_for("the host to end", || first.ended() == Some(0));
    assert!(first.agents().iter().all(|(_, pid)| !harness::is_alive(*pid)), "its agents end with it");
    let again = JoinedHost::start(&site, "h", &format!("{TWO_NODES} --label rack=a1"));
    site.wait_for_nodes(2);
    wait_for_host(&site, "gpu-1", "ready", 2);
    assert_eq!(hosts(&site).len(), 1);
    wait_for("both agents", || again.agents().iter().filter(|(_, pid)| harness::is_alive(*pid)).count() == 2);
    assert_eq!(again.agents().into_iter().map(|(node, _)| node).collect::<Vec<_>>(), nodes, "{}", again.log());
    drop(first);
}

#[test]
fn a_host_is_cordoned_drained_and_removed_in_order() {
    let site = server();
    let word = token(&site, "--ttl 1h")["token"].as_str().expect("a token").to_owned();
    site.write("token", &word);
    let mut carrier = JoinedHost::start(&site, "h", &format!("--token-file token --name gpu-1 {ONE_NODE}"));
    site.prepare(1);
    site.corro("host cordon gpu-1").ok();
    site.submit_ranks("later", 1, &waiting_rank(""));
    wait_for_host(&site, "gpu-1", "cordoned", 1);
    assert_eq!(site.job("later")["executionState"], "queued");
    site.corro("host uncordon gpu-1").ok();
    site.wait_for_starts(1);

    // A graceful drain: the job ends by itself, then the node leaves.
    site.corro("host drain gpu-1").ok();
    wait_for_host(&site, "gpu-1", "draining", 1);
    assert_eq!(site.job("later")["executionState"], "running");
    site.release_ranks();
    assert_eq!(site.wait_for_end("later")["executionState"], "succeeded");
    wait_for_host(&site, "gpu-1", "drained", 0);
    wait_for("the agent to be gone", || carrier.agents().is_empty());

    // An immediate drain: the job is requeued, with the cause, and runs once there is a host.
    fs::remove_file(site.share().join("go")).expect("it was let go");
    site.corro("host uncordon gpu-1").ok();
    site.wait_for_nodes(1);
    site.submit_ranks("again", 1, &waiting_rank(""));
    site.wait_for_starts(2);
    site.corro("host drain gpu-1 --now").ok();
    wait_for("the job to wait again", || site.job("again")["executionState"] == "queued");
    let why = site.corro(&format!("job why again {} -e cifar", harness::IN_WORKSPACE)).ok().stdout;
    assert!(why.contains("its host was taken out of service"), "{why}");
    wait_for_host(&site, "gpu-1", "drained", 0);
    site.corro("host uncordon gpu-1").ok();
    site.wait_for_starts(3);
    site.release_ranks();
    assert_eq!(site.wait_for_end("again")["executionState"], "succeeded");

    site.corro("host remove gpu-1").fails(1, &["runs 1", "--now"]);
    site.corro("host remove gpu-1 --now").ok();
    wait_for("the host's agent to end", || carrier.ended().is_some());
    assert_eq!(carrier.ended(), Some(0), "{}", carrier.log());
    assert!(hosts(&site).is_empty() && carrier.agents().is_empty() && !site.path().join("h/host.json").exists());
    let history = site.corro("admin history").ok().stdout;
    for what in ["hostToken.created", "host.created", "host.changed", "host.deleted"] {
        assert!(history.contains(what), "{what} in {history}");
    }
}

#[test]
fn server_and_host_are_upgraded_one_after_the_other_under_a_running_job() {
    let mut site = server();
    let word = token(&site, "")["token"].as_str().expect("a token").to_owned();
    let program = site.path().join("program");
    let built = env!("CARGO_BIN_EXE_corro");
    if fs::hard_link(built, &program).is_err() {
        fs::copy(built, &program).expect("a copy of the program");
    }
    let words = format!("--token {word} --name gpu-1 {ONE_NODE}");
    let carrier = JoinedHost::start_as(&site, "h", &words, program.clone());
    site.prepare(1);
    site.submit_ranks("long", 1, &waiting_rank(""));
    let rank = site.wait_for_starts(1)[0].pid;
    let (node, agent) = carrier.agents().pop().expect("a node");

    let address = site.address();
    site.stop_server(Signal::TERM);
    assert!(harness::is_alive(rank));
    site.start_server("server", &address, "info");
    wait_for_host(&site, "gpu-1", "ready", 1);

    // Another file under the same name, as a package manager leaves it.
    let fresh = site.path().join("program.new");
    fs::copy(built, &fresh).and_then(|_| fs::rename(&fresh, &program)).expect("a new version");
    let new = fs::metadata(&program).expect("it is there").ino();
    let file_of = |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).map(|about| about.ino()).unwrap_or_default();
    assert_ne!(file_of(carrier.child.id()), new);
    signal(carrier.child.id(), Signal::USR2);
    wait_for("the host to be the new version", || file_of(carrier.child.id()) == new);
    wait_for("the host to serve again", || carrier.log().matches("serves").count() == 2);
    wait_for_host(&site, "gpu-1", "ready", 1);
    assert_eq!((carrier.agents(), site.starts().len()), (vec![(node.clone(), agent)], 1), "the agent is left alone");
    assert!(harness::is_alive(rank) && file_of(agent) != new);

    site.release_ranks();
    let ended = site.wait_for_end("long");
    assert_eq!((&ended["executionState"], site.starts().len()), (&json!("succeeded"), 1), "{ended}");
    wait_for("the node's agent to be renewed", || {
        carrier.agents().first().is_some_and(|(id, pid)| *id == node && *pid != agent && file_of(*pid) == new)
    });
    site.submit_custom("next", 1, "echo renewed");
    assert_eq!(site.wait_for_end("next")["executionState"], "succeeded", "{}", carrier.log());
}
