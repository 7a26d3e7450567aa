//! Operator features on a real server with real jobs: events that outlive a restart, node-hours, the audit log, metrics,
//! health, structured logs, and `corro top`.

#[path = "operators/foreign_text.rs"]
mod foreign_text;
mod harness;
#[path = "operators/terminal.rs"]
mod terminal;
#[path = "operators/traces.rs"]
mod traces;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use harness::{GROUP, Site, wait_for};
use serde_json::Value;

/// Too long for any machine; a test fails instead of hanging.
const DEADLINE: Duration = Duration::from_secs(120);

/// `corro events --follow`, read line by line; ended on drop.
struct Following {
    process: Child,
    lines: Receiver<Value>,
}

impl Following {
    fn start(site: &Site) -> Following {
        let mut process =
            site.command("corro").args(["events", "--follow"]).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("a JSON object in each line"));
            }
        });
        let following = Following { process, lines };
        following.until("the start", |event| event["kind"] == "start");
        following
    }

    /// The next event that satisfies `holds`.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no event: {what}"));
            if holds(&event) {
                return event;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn events_follow_a_job_and_resume_after_a_restart() {
    let mut site = Site::start();
    site.prepare(1);
    let following = Following::start(&site);
    site.submit_custom("first", 1, "true");
    let of_job = |name: &'static str, state: &'static str| {
        move |event: &Value| event["kind"] == "job" && event["name"] == name && event["state"] == state
    };
    for state in ["queued", "running", "succeeded"] {
        let event = following.until(state, of_job("first", state));
        assert_eq!(event["resource"], format!("{GROUP}/batchaidev/cifar/first"));
    }
    let address = site.url.trim_start_matches("http://").to_owned();
    site.kill_server();
    site.up_at(&address);
    following.until("that the past is forgotten", |event| event["kind"] == "missed");
    site.submit_custom("second", 1, "true");
    following.until("the second job", of_job("second", "succeeded"));
    drop(following);
    // Stored events, once; a table for people.
    let events = site.corro("events").ok();
    assert!(events.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{events:?}");
    let table = site.corro("events -o table").ok().stdout;
    assert!(table.starts_with("TIME") && table.contains("batchaidev/cifar/second"), "{table}");
}

#[test]
fn node_hours_audit_log_and_page_agree() {
    let site = Site::start();
    site.prepare(2);
    site.submit_custom("done", 2, "sleep 1");
    site.wait_for_end("done");
    site.submit_custom("waits", 2, "sleep 600");
    site.wait_for_state("waits", &["running"]);
    site.submit_custom("behind", 2, "true");
    site.corro(&format!("batchai job delete -g {GROUP} -w batchaidev -e cifar -n done -y")).ok();

    let by = |what: &str| site.corro(&format!("usage --since 1h --by {what}")).json();
    let jobs = by("job");
    let rows = jobs["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"].as_str().is_some_and(|n| n.ends_with(name)));
    let done = row("/done").expect("what is deleted stays countable");
    assert!(done["nodeHours"].as_f64().is_some_and(|hours| hours >= 2.0 / 3600.0), "{jobs:#}");
    assert_eq!(row("/waits").expect("what runs counts")["running"], 1, "{jobs:#}");
    assert!(row("/behind").is_none(), "what waits uses nothing");
    let users = by("user");
    assert_eq!(users["rows"][0]["jobs"], 2, "{users:#}");
    assert_eq!(users["rows"][0]["userId"], site.profile()["clientId"]);
    let table = site.corro("usage --by experiment -o table").ok();
    assert!(table.stdout.contains("batchaidev/cifar"), "{table:?}");
    site.corro("usage --since yesterday").fails(2, &["yesterday", "7d"]);

    let exported = site.corro("admin history --export").ok().stdout;
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["number"].as_u64()).collect();
    assert!(numbers.len() == lines.len() && numbers.is_sorted() && lines.len() > 10);
    let half = numbers[numbers.len() / 2];
    let rest = site.corro(&format!("admin history --export --after {half}")).ok().stdout;
    let first: Value = serde_json::from_str(rest.lines().next().expect("a line")).expect("JSON");
    assert!(first["number"].as_u64() > Some(half), "{first}");

    let page = site.corro("top").ok().stdout;
    for part in ["nc6cluster", "##", "running     batchaidev/cifar/waits", "queued      batchaidev/cifar/behind"] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let value = site.corro("top -o json").json();
    assert_eq!(value["nodes"].as_array().map(Vec::len), Some(2), "{value:#}");
}

#[test]
fn numbers_health_and_logs_are_for_machines() {
    let site = Site::start_with(&["--log-format", "json"]);
    let plain = |path: &str| harness::http::get(&format!("{}{path}", site.url), &[]);
    assert_eq!((plain("/healthz").status, plain("/healthz").text()), (200, "ok\n".to_owned()));
    wait_for("readiness", || plain("/readyz").status == 200);
    assert_eq!(plain("/metrics").status, 401);
    let metrics = site.arm("GET", "/metrics", Value::Null).is(200).text();
    assert!(metrics.contains("corro_build_info{version="), "{metrics}");
    let log = site.up_log();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let entry = lines.iter().find(|line| line["path"] == "/metrics" && line["status"] == 200);
    let entry = entry.unwrap_or_else(|| panic!("no line about the request: {log}"));
    assert!(entry["request_id"].is_string() && entry["level"] == "info", "{entry}");
    let secret = site.profile()["clientSecret"].as_str().expect("text").to_owned();
    assert!(!log.contains(&secret));
    // Nodes log in the same format as the server.
    site.prepare(1);
    let (node, _) = site.agents().pop().expect("an agent");
    let log = std::fs::read_to_string(site.data().join("nodes").join(node).join("agent.log")).expect("its log");
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("joined as node ")).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
}
