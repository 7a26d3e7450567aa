//! Renders the page as lines of text, cut to the size of the terminal. Pure.

use corro_model::Timestamp;
use corro_model::batchai::{Cluster, ExecutionState, JobCounts, JobSummary, NodeSummary};

use crate::output::escape_controls;

/// State of the server.
pub struct Snapshot {
    pub server: String,
    /// Time of the request.
    pub at: Timestamp,
    pub clusters: Vec<Cluster>,
    pub nodes: Vec<NodeSummary>,
    /// Jobs that run or wait, newest first.
    pub active: Vec<JobSummary>,
    /// Jobs that have ended, newest first.
    pub recent: Vec<JobSummary>,
    pub counts: JobCounts,
}

/// Size of the terminal and the user's selection.
pub struct View<'a> {
    pub width: usize,
    pub height: usize,
    pub colour: bool,
    pub selected: Option<usize>,
    /// Text that is shown instead of the page.
    pub detail: Option<&'a [String]>,
}

/// Smaller terminals show no line with keys.
const MIN_HEIGHT_WITH_KEYS: usize = 12;
/// Age from which the page says that the server does not answer.
const STALE_AFTER_MS: i64 = 15_000;

impl Snapshot {
    /// Jobs in display order: running, queued, ended.
    fn jobs(&self) -> impl Iterator<Item = &JobSummary> {
        let waits = |job: &&JobSummary| job.state == ExecutionState::Queued;
        let mut waiting: Vec<&JobSummary> = self.active.iter().filter(waits).collect();
        waiting.sort_by_key(|job| (job.cluster_id.clone(), job.position.unwrap_or(i32::MAX)));
        self.active.iter().filter(move |job| !waits(job)).chain(waiting).chain(&self.recent)
    }

    pub fn n_jobs(&self) -> usize {
        self.active.len() + self.recent.len()
    }

    pub fn job(&self, idx: usize) -> Option<&JobSummary> {
        self.jobs().nth(idx)
    }
}

/// The lines of the page.
pub fn render(snapshot: &Snapshot, view: &View<'_>, now: Timestamp) -> Vec<String> {
    if let Some(detail) = view.detail {
        let keys = key_help("Esc: back   q: quit", view);
        let rows_left = view.height.saturating_sub(1 + usize::from(keys.is_some()));
        return detail.iter().flat_map(|line| wrap(line, view.width)).take(rows_left).chain(keys).collect();
    }
    let counts = snapshot.counts;
    let is_old = now.millis() - snapshot.at.millis() > STALE_AFTER_MS;
    let notice = match is_old {
        true => format!(" (as of {} ago: the server does not answer)", age(snapshot.at, now)),
        false => String::new(),
    };
    let head = format!(
        "corro {}{notice}   {} running, {} waiting, {} succeeded, {} failed",
        snapshot.server,
        counts.running + counts.terminating,
        counts.queued,
        counts.succeeded,
        counts.failed
    );
    let mut lines = vec![fit(&head, view.width), String::new()];
    for cluster in &snapshot.clusters {
        lines.push(cluster_line(snapshot, cluster, view));
    }
    if snapshot.clusters.is_empty() {
        lines.push(
            "no clusters: none exists, or none that you may read ('corro batchai cluster create --help')".to_owned(),
        );
    }
    lines.push(String::new());
    let title = format!("  {:<12}{:<34}{:>6}{:>9}  {}", "STATE", "JOB", "NODES", "SINCE", "WHY");
    lines.push(fit(&title, view.width));
    // The list is cut at its end, but the selected job is always visible.
    let keys = key_help("up, down: choose a job   Enter: why   q: quit", view);
    let rows_left = view.height.saturating_sub(lines.len() + 1 + usize::from(keys.is_some()));
    let first = view.selected.map_or(0, |selected| (selected + 1).saturating_sub(rows_left));
    for (idx, job) in snapshot.jobs().enumerate().skip(first).take(rows_left) {
        lines.push(job_line(job, view, view.selected == Some(idx), now));
    }
    lines.extend(keys);
    lines
}

/// The line with keys, if the terminal is high enough.
fn key_help(text: &str, view: &View<'_>) -> Option<String> {
    (MIN_HEIGHT_WITH_KEYS..usize::MAX).contains(&view.height).then(|| coloured(&fit(text, view.width), 90, view.colour))
}

/// Wraps a line between words; further lines have the same indentation.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let mut lines = vec![" ".repeat(indent)];
    let mut is_empty = true;
    for word in line.split_whitespace() {
        let last = lines.last_mut().expect("one at least");
        let used = last.chars().count() + usize::from(!is_empty) + word.chars().count();
        if used > width && !is_empty {
            lines.push(fit(&format!("{}{word}", " ".repeat(indent)), width));
            continue;
        }
        if !is_empty {
            last.push(' ');
        }
        last.push_str(word);
        *last = fit(last, width);
        is_empty = false;
    }
    lines
}

/// Name, number of busy nodes, and a character per node.
fn cluster_line(snapshot: &Snapshot, cluster: &Cluster, view: &View<'_>) -> String {
    let id = cluster.id.to_lowercase();
    let nodes = snapshot.nodes.iter().filter(|node| node.cluster_id.to_lowercase() == id);
    let states: Vec<&str> = nodes.map(|node| node.state.as_str()).collect();
    let running = states.iter().filter(|state| **state == "running").count();
    let name = format!("{:<28}{:>9}  ", escape_controls(&cluster.name), format!("{running}/{} busy", states.len()));
    let mut text: String = name.chars().take(view.width).collect();
    let rows_left = view.width.saturating_sub(text.chars().count());
    for state in states.into_iter().take(rows_left) {
        let (letter, colour) = node_tile(state);
        text += &coloured(letter, colour, view.colour);
    }
    text
}

fn node_tile(state: &str) -> (&'static str, u8) {
    match state {
        "running" => ("#", 32),
        "idle" => ("-", 36),
        "preparing" => ("p", 33),
        "allocating" => (".", 90),
        "leaving" => ("l", 35),
        _ => ("!", 31),
    }
}

fn job_line(job: &JobSummary, view: &View<'_>, is_selected: bool, now: Timestamp) -> String {
    let (state, colour) = match job.state {
        ExecutionState::Queued => ("queued", 33),
        ExecutionState::Running => ("running", 32),
        ExecutionState::Terminating => ("terminating", 35),
        ExecutionState::Succeeded => ("succeeded", 36),
        ExecutionState::Failed => ("failed", 31),
    };
    let name = escape_controls(&format!("{}/{}/{}", job.workspace, job.experiment, job.name)).to_string();
    let why = job.waiting_for.as_deref().or(job.error.as_deref()).unwrap_or_default();
    let mark = if is_selected { "> " } else { "  " };
    let rest = format!("{:<34}{:>6}{:>9}  {}", name, job.node_count, age(job.since, now), escape_controls(why));
    let before = format!("{mark}{state:<12}");
    let rest = fit(&rest, view.width.saturating_sub(before.chars().count()));
    let before = format!("{mark}{}", coloured(&format!("{state:<12}"), colour, view.colour));
    before + &rest
}

fn coloured(text: &str, colour: u8, is_wanted: bool) -> String {
    if is_wanted { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

fn fit(text: &str, width: usize) -> String {
    text.chars().take(width).collect::<String>().trim_end().to_owned()
}

fn age(since: Timestamp, now: Timestamp) -> String {
    match now.since(since).as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_542_000_000_000 + seconds * 1_000)
    }

    fn job(name: &str, state: &str, position: Option<i32>) -> Value {
        json!({"id": name, "name": name, "resourceGroup": "g", "workspace": "w", "experiment": "e",
               "clusterId": "/c", "toolType": "custom", "priority": "normal", "nodeCount": 2, "state": state,
               "since": at(0), "creationTime": at(0), "position": position,
               "waitingFor": position.map(|_| "2 nodes\u{1b}[31m are busy")})
    }

    fn snapshot() -> Snapshot {
        let cluster = json!({"id": "/C", "name": "nc6", "type": "t", "properties": {
            "provisioningState": "succeeded", "creationTime": at(0), "provisioningStateTransitionTime": at(0),
            "allocationState": "steady", "allocationStateTransitionTime": at(0), "currentNodeCount": 3,
            "nodeStateCounts": {"runningNodeCount": 1, "idleNodeCount": 1, "preparingNodeCount": 0,
                                "leavingNodeCount": 0, "unusableNodeCount": 1},
            "vmSize": "STANDARD_D1", "userAccountSettings": {"adminUserName": "a"},
            "scaleSettings": {"manual": {"targetNodeCount": 3}}}});
        let node = |state: &str| {
            json!({"nodeId": "tvm-1_1-20180718t174802z-p", "resourceGroup": "g", "workspace": "w", "cluster": "nc6",
                   "clusterId": "/c", "vmPriority": "dedicated", "state": state, "since": at(0)})
        };
        let read = |values: Vec<Value>| serde_json::from_value(Value::Array(values)).expect("literals");
        Snapshot {
            server: "http://here".to_owned(),
            at: at(80),
            clusters: serde_json::from_value(json!([cluster])).expect("a literal"),
            nodes: serde_json::from_value(json!([node("running"), node("idle"), node("unusable")])).expect("literals"),
            active: read(vec![job("b", "queued", Some(2)), job("a", "queued", Some(1)), job("r", "running", None)]),
            recent: read(vec![job("old", "failed", None)]),
            counts: JobCounts { queued: 2, running: 1, failed: 1, ..JobCounts::default() },
        }
    }

    #[test]
    fn long_lines_are_wrapped() {
        assert_eq!(wrap("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(wrap("short", 9), ["short"]);
        assert_eq!(wrap("averylongword x", 5), ["avery", "x"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn the_page_shows_nodes_and_jobs_in_order() {
        let view = View { width: 200, height: 50, colour: false, selected: None, detail: None };
        assert_eq!(
            render(&snapshot(), &view, at(90)),
            [
                "corro http://here   1 running, 2 waiting, 0 succeeded, 1 failed",
                "",
                "nc6                          1/3 busy  #-!",
                "",
                "  STATE       JOB                                NODES    SINCE  WHY",
                "  running     w/e/r                                  2    1 min",
                "  queued      w/e/a                                  2    1 min  2 nodes\\x1b[31m are busy",
                "  queued      w/e/b                                  2    1 min  2 nodes\\x1b[31m are busy",
                "  failed      w/e/old                                2    1 min",
                "up, down: choose a job   Enter: why   q: quit",
            ]
        );
    }

    #[test]
    fn a_small_terminal_shows_the_selected_job() {
        for (width, height) in [(40, 8), (10, 7), (1, 6), (80, 1)] {
            let view = View { width, height, colour: false, selected: Some(3), detail: None };
            let lines = render(&snapshot(), &view, at(90));
            assert!(lines.iter().all(|line| line.chars().count() <= width.max(14)), "{width}: {lines:?}");
        }
        let view = View { width: 80, height: 8, colour: true, selected: Some(3), detail: None };
        let lines = render(&snapshot(), &view, at(900));
        assert_eq!(lines.len(), 7);
        assert!(lines[0].contains("does not answer"));
        assert!(lines.last().is_some_and(|line| line.starts_with("> \u{1b}[31mfailed")), "{lines:?}");
    }
}
