//! Node-hours by user, cluster, experiment and job. Computed from the history, which survives deletions, and from
//! running jobs, so a restart loses nothing. Attempts that lost their nodes count for the time they had them. Quotas
//! are in `clusters::quotas`.

use std::collections::{BTreeMap, HashMap, HashSet};

use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::rbac::Right;
use corro_model::usage::{UsageBy, UsageReport, UsageRow};
use corro_model::{ApiError, Timestamp};
use corro_store::State;

use crate::app::App;
use crate::app::access::caller::{Caller, scope_of_key};
use crate::app::access::principals::principal_name;

/// History lines per read, so that other readers can run in between.
const HISTORY_PAGE_SIZE: usize = 10_000;
/// User of a job whose submission is no longer in the history.
const UNKNOWN_USER: &str = "unknown";

#[derive(Clone, Copy)]
pub struct Window {
    pub since: Timestamp,
    pub until: Timestamp,
}

/// Accumulates node-hours from history lines.
pub struct NodeHourMeter {
    window: Window,
    jobs: HashMap<String, MeteredJob>,
    intervals: Vec<UsageInterval>,
    first: Option<Timestamp>,
}

#[derive(Clone)]
struct MeteredJob {
    user: String,
    cluster: String,
    /// Start of the current attempt and its node count.
    placed: Option<(Timestamp, u64)>,
    /// Distinguishes jobs of the same name.
    number: u64,
}

struct UsageInterval {
    job: String,
    number: u64,
    user: String,
    cluster: String,
    node_millis: i64,
    is_running: bool,
}

impl NodeHourMeter {
    pub fn new(window: Window) -> Self {
        Self { window, jobs: HashMap::new(), intervals: Vec::new(), first: None }
    }

    /// Adds the next history line about a job, oldest first.
    pub fn read(&mut self, line: &HistoryEntry) {
        self.first.get_or_insert(line.time);
        let text = |name: &str| line.detail[name].as_str().unwrap_or_default().to_owned();
        let known = self.jobs.get_mut(&line.resource);
        match (line.what.as_str(), known) {
            ("job.submitted", _) => {
                let (user, cluster, number) = (line.actor.clone(), text("cluster"), line.number);
                self.jobs.insert(line.resource.clone(), MeteredJob { user, cluster, placed: None, number });
            }
            ("job.placed", known) => {
                let placed = Some((line.time, line.detail["nodeCount"].as_u64().unwrap_or(1)));
                match known {
                    Some(job) => job.placed = placed,
                    None => {
                        let (user, cluster, number) = (UNKNOWN_USER.to_owned(), String::new(), line.number);
                        self.jobs.insert(line.resource.clone(), MeteredJob { user, cluster, placed, number });
                    }
                }
            }
            ("job.resized", Some(job)) => {
                if let Some(placed) = job.placed.take() {
                    let nodes = line.detail["nodeCount"].as_u64().unwrap_or(placed.1);
                    job.placed = Some((line.time, nodes));
                    let job = job.clone();
                    self.add_interval(&line.resource, &job, placed, line.time, false);
                }
            }
            ("job.requeued" | "job.succeeded" | "job.failed" | "job.deleted", Some(job)) => {
                if let Some(placed) = job.placed.take() {
                    let job = job.clone();
                    self.add_interval(&line.resource, &job, placed, line.time, false);
                }
                if line.what == "job.deleted" {
                    self.jobs.remove(&line.resource);
                }
            }
            _ => {}
        }
    }

    fn add_interval(
        &mut self,
        name: &str,
        job: &MeteredJob,
        (from, nodes): (Timestamp, u64),
        to: Timestamp,
        is_running: bool,
    ) {
        let from = from.max(self.window.since);
        let millis = to.min(self.window.until).millis() - from.millis();
        if millis > 0 {
            let (user, cluster, number) = (job.user.clone(), job.cluster.clone(), job.number);
            let node_millis = millis.saturating_mul(nodes as i64);
            self.intervals.push(UsageInterval { job: name.to_owned(), number, user, cluster, node_millis, is_running });
        }
    }

    /// Adds jobs that still have nodes, until `now`, even if their start is no longer in the history.
    pub fn finish(mut self, state: &State, now: Timestamp) -> MeteredUsage {
        let active: HashMap<&str, _> = state.active_jobs().map(|(key, job)| (key.as_str(), job)).collect();
        let jobs = std::mem::take(&mut self.jobs);
        for (key, job) in &jobs {
            // A job that ended after the window appears running in these lines.
            if let Some(placed) = job.placed {
                self.add_interval(key, job, placed, now, active.contains_key(key.as_str()));
            }
        }
        for (key, record) in active.into_iter().filter(|(key, _)| !jobs.contains_key(*key)) {
            let (user, cluster) = (UNKNOWN_USER.to_owned(), record.cluster.to_string());
            let started = record.state().started().unwrap_or(record.since());
            let placed = (started, record.state().nodes().len() as u64);
            self.add_interval(key, &MeteredJob { user, cluster, placed: None, number: 0 }, placed, now, true);
        }
        MeteredUsage { window: self.window, intervals: self.intervals, first: self.first }
    }
}

/// Intervals in which jobs had nodes.
pub struct MeteredUsage {
    window: Window,
    intervals: Vec<UsageInterval>,
    first: Option<Timestamp>,
}

impl MeteredUsage {
    /// Sums up the jobs that the caller may read. `name` returns the display name of a user.
    pub fn report(&self, by: UsageBy, caller: &Caller, name: impl Fn(&str) -> String) -> UsageReport {
        struct Sum<'a> {
            millis: i64,
            jobs: HashSet<(&'a str, u64)>,
            running: HashSet<&'a str>,
        }
        let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
        for intervals in
            self.intervals.iter().filter(|intervals| caller.may(Right::Read, &scope_of_key(&intervals.job)))
        {
            let key = match by {
                UsageBy::User => &intervals.user,
                UsageBy::Cluster => &intervals.cluster,
                UsageBy::Job => &intervals.job,
                UsageBy::Experiment => intervals.job.rsplit_once('/').map_or("", |(experiment, _)| experiment),
            };
            let empty = || Sum { millis: 0, jobs: HashSet::new(), running: HashSet::new() };
            let sum = sums.entry(key).or_insert_with(empty);
            sum.millis = sum.millis.saturating_add(intervals.node_millis);
            sum.jobs.insert((&intervals.job, intervals.number));
            if intervals.is_running {
                sum.running.insert(&intervals.job);
            }
        }
        let hours = |millis: i64| millis as f64 / 3_600_000.0;
        let total = sums.values().map(|sum| sum.millis).sum();
        let row = |(key, sum): (&str, Sum<'_>)| UsageRow {
            name: if by == UsageBy::User { name(key) } else { key.to_owned() },
            user_id: (by == UsageBy::User).then(|| key.to_owned()),
            node_hours: hours(sum.millis),
            jobs: sum.jobs.len() as u64,
            running: sum.running.len() as u64,
        };
        let mut rows: Vec<UsageRow> = sums.into_iter().map(row).collect();
        rows.sort_by(|one, other| other.node_hours.total_cmp(&one.node_hours));
        let Window { since, until } = self.window;
        let known_since = self.first.filter(|first| *first > since);
        UsageReport { since, until, by, known_since, rows, total_node_hours: hours(total) }
    }
}

impl App {
    /// Node-hours in a window of the jobs that the caller may read. `now` is a single instant for all; otherwise
    /// running jobs would seem to end before it.
    pub async fn node_hours(&self, window: Window, now: Timestamp, by: UsageBy) -> Result<UsageReport, ApiError> {
        let (store, until) = (self.store.clone(), window.until);
        let count = move || {
            let mut meter = NodeHourMeter::new(window);
            let kind = Some("job".to_owned());
            let mut filter = HistoryFilter { kind, after: Some(0), ..HistoryFilter::newest(HISTORY_PAGE_SIZE) };
            loop {
                // Snapshot before the lines: a job that ends in between has its line.
                let state = store.snapshot();
                let lines = store.history(&filter)?;
                lines.iter().filter(|line| line.time < until).for_each(|line| meter.read(line));
                match lines.last() {
                    Some(last) if lines.len() == HISTORY_PAGE_SIZE => filter.after = Some(last.number),
                    _ => return Ok::<_, ApiError>(meter.finish(&state, now)),
                }
            }
        };
        let counted = tokio::task::spawn_blocking(count).await;
        let counted = counted.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))??;
        let snapshot = self.snapshot();
        Ok(counted.report(by, &self.request.caller, |id| principal_name(&snapshot, id)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::*;

    fn line(number: u64, minutes: u64, actor: &str, what: &str, resource: &str, detail: Value) -> HistoryEntry {
        let (actor, what, resource) = (actor.to_owned(), what.to_owned(), resource.to_owned());
        HistoryEntry { number, time: at(minutes * 60), actor, what, resource, detail }
    }

    fn report(
        lines: &[HistoryEntry],
        state: &State,
        hours: (u64, u64),
        now: u64,
        by: UsageBy,
    ) -> Vec<(String, f64, u64, u64)> {
        let mut meter = NodeHourMeter::new(Window { since: at(hours.0 * 3600), until: at(hours.1 * 3600) });
        lines.iter().for_each(|line| meter.read(line));
        let report = meter.finish(state, at(now * 60)).report(by, &Caller::server(), str::to_uppercase);
        let total: f64 = report.rows.iter().map(|row| row.node_hours).sum();
        assert!((total - report.total_node_hours).abs() < 1e-9);
        report.rows.into_iter().map(|row| (row.name, row.node_hours, row.jobs, row.running)).collect()
    }

    #[test]
    fn ended_lost_and_deleted_jobs_count_inside_the_window_only() {
        let cluster = || json!({"cluster": "g/w/c", "nodeCount": 2});
        let lines = [
            line(1, 0, "ada", "job.submitted", "g/w/e/a", cluster()),
            line(2, 10, "corro", "job.placed", "g/w/e/a", json!({"attempt": 1, "nodeCount": 2})),
            line(3, 40, "corro", "job.requeued", "g/w/e/a", json!({"attempt": 1})),
            line(4, 60, "corro", "job.placed", "g/w/e/a", json!({"attempt": 2, "nodeCount": 2})),
            line(5, 120, "corro", "job.succeeded", "g/w/e/a", Value::Null),
            line(6, 121, "ada", "job.deleted", "g/w/e/a", Value::Null),
            // The same name again, by another user.
            line(7, 130, "bob", "job.submitted", "g/w/e/a", cluster()),
            line(8, 150, "corro", "job.placed", "g/w/e/a", json!({"nodeCount": 1})),
            line(9, 180, "corro", "job.failed", "g/w/e/a", Value::Null),
            line(10, 181, "bob", "job.submitted", "g/w/f/b", cluster()),
        ];
        let none = State::default();
        let all = |by| report(&lines, &none, (0, 9), 500, by);
        assert_eq!(all(UsageBy::User), [("ADA".to_owned(), 3.0, 1, 0), ("BOB".to_owned(), 0.5, 1, 0)]);
        assert_eq!(all(UsageBy::Job), [("g/w/e/a".to_owned(), 3.5, 2, 0)]);
        assert_eq!(all(UsageBy::Experiment), [("g/w/e".to_owned(), 3.5, 2, 0)]);
        assert_eq!(all(UsageBy::Cluster), [("g/w/c".to_owned(), 3.5, 2, 0)]);
        assert_eq!(report(&lines, &none, (1, 2), 500, UsageBy::User), [("ADA".to_owned(), 2.0, 1, 0)]);
        assert_eq!(report(&lines, &none, (4, 5), 500, UsageBy::User), []);
    }

    #[test]
    fn elastic_jobs_count_with_the_nodes_that_they_had() {
        let lines = [
            line(1, 0, "ada", "job.submitted", "g/w/e/a", json!({"cluster": "g/w/c", "nodeCount": 2})),
            line(2, 0, "corro", "job.placed", "g/w/e/a", json!({"attempt": 1, "nodeCount": 2})),
            line(3, 60, "corro", "job.resized", "g/w/e/a", json!({"attempt": 1, "nodeCount": 4})),
            line(4, 90, "corro", "job.resized", "g/w/e/a", json!({"attempt": 1, "nodeCount": 1})),
            line(5, 120, "corro", "job.succeeded", "g/w/e/a", Value::Null),
        ];
        let hours = report(&lines, &State::default(), (0, 9), 500, UsageBy::Job);
        assert_eq!(hours, [("g/w/e/a".to_owned(), 4.5, 1, 0)]);
    }

    #[test]
    fn running_jobs_count_until_now_even_if_their_start_is_forgotten() {
        let mut state = state(manual(2), 2);
        submit(&mut state, "a", 2, "PT9H");
        start(&mut state, "a", &[1, 2]);
        let job = key("a").to_string();
        let lines = [
            line(1, 0, "ada", "job.submitted", &job, json!({"cluster": "g/w/nc6"})),
            line(2, 0, "corro", "job.placed", &job, json!({"nodeCount": 2})),
        ];
        assert_eq!(report(&lines, &state, (0, 9), 90, UsageBy::User), [("ADA".to_owned(), 3.0, 1, 1)]);
        assert_eq!(report(&[], &state, (0, 9), 90, UsageBy::User), [("UNKNOWN".to_owned(), 3.0, 1, 1)]);
        assert_eq!(report(&[], &state, (0, 9), 90, UsageBy::Cluster), [("g/w/nc6".to_owned(), 3.0, 1, 1)]);
        assert_eq!(report(&lines, &state, (0, 1), 90, UsageBy::User), [("ADA".to_owned(), 2.0, 1, 1)], "and now");
    }
}
