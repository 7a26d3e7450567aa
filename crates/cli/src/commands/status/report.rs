//! The output of `corro status`: an object for programs, and lines for people. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use corro_model::Timestamp;
use corro_model::arm::ServerStatus;
use corro_model::batchai::JobCounts;
use corro_model::time::Span;
use serde::Serialize;

/// What is known about a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// Whether it runs and answers.
    pub running: bool,
    pub server: Option<String>,
    pub version: Option<String>,
    pub start_time: Option<Timestamp>,
    /// Its process, if it is on this machine and can be seen by this user.
    #[serde(flatten)]
    pub process: Option<LocalProcess>,
    /// Nodes that the user may see, by state.
    pub nodes: Option<BTreeMap<String, usize>>,
    /// Jobs that the user may see, by state.
    pub jobs: Option<JobCounts>,
    /// Why it does not count as running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalProcess {
    pub pid: u32,
    pub data_directory: PathBuf,
    /// `None` if unknown.
    pub background: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}

/// What the server says.
pub struct Answer {
    /// `None` for servers of earlier versions.
    pub status: Option<ServerStatus>,
    pub nodes: BTreeMap<String, usize>,
    pub jobs: JobCounts,
}

impl ServerReport {
    pub fn add(&mut self, answer: Answer) {
        let Answer { status, nodes, jobs } = answer;
        if let Some(ServerStatus { version, start_time }) = status {
            self.version = Some(version);
            self.start_time = Some(start_time);
        }
        self.running = true;
        self.nodes = Some(nodes);
        self.jobs = Some(jobs);
    }

    /// Lines for the terminal.
    pub fn text(&self, now: Timestamp) -> Vec<String> {
        let version = self.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let mut lines = vec![match (self.running, &self.server) {
            (true, Some(server)) => format!("Corro{version} runs at {server}"),
            _ => format!("Corro{version}"),
        }];
        let mut line = |name: &str, value: String| lines.push(format!("  {name:<8} {value}"));
        if let Some(start) = self.start_time {
            line("since", format!("{} ({})", start.whole_seconds(), Span(now.since(start)).in_words()));
        }
        if let Some(process) = &self.process {
            let place = match process.background {
                Some(true) => ", in the background",
                Some(false) => ", in a terminal or under a supervisor",
                None => "",
            };
            line("process", format!("{}{place}", process.pid));
            line("data", process.data_directory.display().to_string());
            if let Some(log) = &process.log {
                line("log", log.display().to_string());
            }
        }
        if let Some(nodes) = &self.nodes {
            let total: usize = nodes.values().sum();
            let states = nodes.iter().map(|(state, n)| format!("{n} {state}")).collect::<Vec<_>>().join(", ");
            line("nodes", if total == 0 { "none".to_owned() } else { format!("{total} ({states})") });
        }
        if let Some(jobs) = &self.jobs {
            let ended = jobs.succeeded + jobs.failed;
            let running = jobs.running + jobs.terminating;
            line("jobs", format!("{running} running, {} queued, {ended} ended", jobs.queued));
        }
        lines
    }

    /// What to do about [`ServerReport::problem`].
    pub fn hint(&self) -> &'static str {
        match (&self.process, &self.server) {
            (Some(LocalProcess { log: Some(_), .. }), _) => {
                "try again in a moment; if it stays so, read its log, and end it with 'corro stop'"
            }
            (Some(_), _) => "try again in a moment; if it stays so, end it with 'corro stop'",
            (None, Some(_)) => {
                "start it with 'corro up --detach' if it is on this machine, else check it there; or log in to another \
                 with 'corro login'"
            }
            (None, None) => "start one with 'corro up --detach', or log in to another with 'corro login'",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> ServerReport {
        let process = LocalProcess {
            pid: 42,
            data_directory: "/d".into(),
            background: Some(true),
            log: Some("/d/server.log".into()),
        };
        let mut report = ServerReport {
            server: Some("http://127.0.0.1:1".to_owned()),
            process: Some(process),
            ..ServerReport::default()
        };
        let start_time = Timestamp::parse("2026-01-01T10:00:00Z").expect("a time");
        report.add(Answer {
            status: Some(ServerStatus { version: "0.1.0".to_owned(), start_time }),
            nodes: [("idle".to_owned(), 1), ("running".to_owned(), 3)].into(),
            jobs: JobCounts { queued: 2, running: 1, succeeded: 4, failed: 1, ..JobCounts::default() },
        });
        report
    }

    #[test]
    fn a_running_server_is_described() {
        let now = Timestamp::parse("2026-01-01T12:05:00Z").expect("a time");
        let expected = [
            "Corro 0.1.0 runs at http://127.0.0.1:1",
            "  since    2026-01-01T10:00:00Z (2 h 5 min)",
            "  process  42, in the background",
            "  data     /d",
            "  log      /d/server.log",
            "  nodes    4 (1 idle, 3 running)",
            "  jobs     1 running, 2 queued, 5 ended",
        ];
        assert_eq!(report().text(now), expected);
        let remote = ServerReport { process: None, nodes: Some(BTreeMap::new()), ..report() };
        assert_eq!(remote.text(now)[2], "  nodes    none");
    }

    #[test]
    fn the_object_is_flat() {
        let value = serde_json::to_value(report()).expect("JSON");
        assert_eq!((&value["running"], &value["pid"], &value["background"]), (&json!(true), &json!(42), &json!(true)));
        assert_eq!((&value["nodes"]["idle"], &value["jobs"]["queued"]), (&json!(1), &json!(2)));
        let nothing = serde_json::to_value(ServerReport::default()).expect("JSON");
        assert_eq!((&nothing["running"], nothing.get("pid"), &nothing["server"]), (&json!(false), None, &json!(null)));
    }
}
