//! Node and busy-node counts of a cluster over time, computed from the history backwards from the current counts. A
//! truncated history yields fewer points but no wrong ones.

use std::collections::HashMap;

use corro_model::batchai::{ClusterHistory, ClusterPoint};
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::state::NodeState;
use corro_model::{ApiError, Timestamp};
use corro_store::State;

use crate::app::App;
use crate::app::resources::lookup::find_cluster;

/// Limits on the history lines read and on the points returned.
const MAX_HISTORY_LINES: usize = 20_000;
const MAX_POINTS: usize = 400;

/// CountChange of the counts by one history line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CountChange {
    at: Timestamp,
    nodes: i32,
    busy: i32,
}

impl App {
    /// Blocking: reads the history.
    pub fn cluster_history(&self, names: (&str, &str, &str), hours: i64) -> Result<ClusterHistory, ApiError> {
        let (group, workspace, cluster) = names;
        let snapshot = self.snapshot();
        let (key, _) = find_cluster(&snapshot, group, workspace, cluster)?;
        let until = self.now();
        let since = Timestamp::from_millis(until.millis() - hours * 3_600_000);
        let read = |kind: &str, resource: Option<String>| {
            let filter = HistoryFilter {
                resource,
                kind: Some(kind.to_owned()),
                since: Some(since),
                ..HistoryFilter::newest(MAX_HISTORY_LINES)
            };
            self.store.history(&filter).map_err(ApiError::from)
        };
        let mut changes = node_changes(&read("node", Some(key.as_str().to_owned()))?);
        changes.extend(job_changes(&read("job", None)?, &snapshot, key.as_str(), since));
        changes.sort_by_key(|change| change.at);
        let counts = snapshot.nodes_of(&key).fold((0, 0), |(nodes, busy), (_, node)| {
            (nodes + 1, busy + i32::from(matches!(node.state(), NodeState::Running { .. })))
        });
        Ok(ClusterHistory { since, until, points: thin_points(count_points(&changes, counts, since), since, until) })
    }
}

fn node_changes(entries: &[HistoryEntry]) -> Vec<CountChange> {
    let of = |entry: &HistoryEntry| {
        let nodes = match entry.what.as_str() {
            "node.allocated" => 1,
            "node.deleted" => -1,
            _ => return None,
        };
        Some(CountChange { at: entry.time, nodes, busy: 0 })
    };
    entries.iter().filter_map(of).collect()
}

/// Changes of the busy count from the placement and end of jobs. A job's cluster comes from its record or its
/// submission.
fn job_changes(entries: &[HistoryEntry], state: &State, cluster: &str, since: Timestamp) -> Vec<CountChange> {
    let mut known: HashMap<String, (bool, i32, bool)> = HashMap::new();
    for (key, job) in &state.jobs {
        let began_before = job.state().started().is_some_and(|start| start < since);
        known.insert(key.as_str().to_owned(), (job.cluster.as_str() == cluster, job.spec.node_count, began_before));
    }
    // Nodes of the jobs whose placement is in these lines.
    let mut running: HashMap<&str, i32> = HashMap::new();
    let mut changes = Vec::new();
    // Oldest first.
    for entry in entries.iter().rev() {
        let count = entry.detail["nodeCount"].as_i64().unwrap_or(0) as i32;
        if entry.what == "job.submitted" && !known.contains_key(&entry.resource) {
            known.insert(entry.resource.clone(), (entry.detail["cluster"] == cluster, count, false));
        }
        let Some(&(true, nodes, began_before)) = known.get(&entry.resource) else { continue };
        let mut change = |busy| changes.push(CountChange { at: entry.time, nodes: 0, busy });
        match entry.what.as_str() {
            "job.placed" => {
                let placed = if count > 0 { count } else { nodes };
                running.insert(&entry.resource, placed);
                change(placed);
            }
            // A job of a fixed size is never resized.
            "job.resized" => {
                let before = running.insert(&entry.resource, count);
                change(count - before.unwrap_or(nodes));
            }
            "job.succeeded" | "job.failed" | "job.requeued" => match running.remove(entry.resource.as_str()) {
                Some(placed) => change(-placed),
                None if began_before => change(-nodes),
                None => {}
            },
            _ => {}
        }
    }
    changes
}

/// Counts after each change. `changes` are oldest first and lead to the current counts.
fn count_points(changes: &[CountChange], (nodes, busy): (i32, i32), since: Timestamp) -> Vec<ClusterPoint> {
    let (all_nodes, all_busy) = changes.iter().fold((0, 0), |(n, b), change| (n + change.nodes, b + change.busy));
    let mut point = ClusterPoint { time: since, nodes: nodes - all_nodes, busy: busy - all_busy };
    let mut points = vec![point];
    for change in changes {
        point = ClusterPoint { time: change.at, nodes: point.nodes + change.nodes, busy: point.busy + change.busy };
        points.push(point);
    }
    for point in &mut points {
        point.nodes = point.nodes.max(0);
        point.busy = point.busy.clamp(0, point.nodes);
    }
    points
}

/// Keeps the last point of each interval, and the first of all.
fn thin_points(points: Vec<ClusterPoint>, since: Timestamp, until: Timestamp) -> Vec<ClusterPoint> {
    let width = ((until.millis() - since.millis()) / MAX_POINTS as i64).max(1);
    let slot = |point: &ClusterPoint| (point.time.millis() - since.millis()) / width;
    let mut thinned: Vec<ClusterPoint> = Vec::new();
    for point in points {
        match thinned.len() > 1 && thinned.last().is_some_and(|last| slot(last) == slot(&point)) {
            true => *thinned.last_mut().expect("there is one") = point,
            false => thinned.push(point),
        }
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    #[test]
    fn points_end_at_the_current_counts() {
        let changes = [
            CountChange { at: at(10), nodes: 2, busy: 0 },
            CountChange { at: at(20), nodes: 0, busy: 2 },
            CountChange { at: at(30), nodes: 0, busy: -2 },
            CountChange { at: at(40), nodes: -1, busy: 0 },
        ];
        let found: Vec<_> = count_points(&changes, (2, 0), at(0)).iter().map(|p| (p.time, p.nodes, p.busy)).collect();
        assert_eq!(found, [(at(0), 1, 0), (at(10), 3, 0), (at(20), 3, 2), (at(30), 3, 0), (at(40), 2, 0)]);
        let quiet = count_points(&[], (3, 1), at(0));
        assert_eq!(quiet, [ClusterPoint { time: at(0), nodes: 3, busy: 1 }]);
    }

    #[test]
    fn points_are_thinned_and_the_last_is_kept() {
        let many: Vec<_> = (0..10_000).map(|n| ClusterPoint { time: at(n), nodes: n as i32, busy: 0 }).collect();
        let few = thin_points(many, at(0), at(10_000));
        assert!(few.len() <= MAX_POINTS + 1 && few.last().is_some_and(|last| last.nodes == 9_999), "{}", few.len());
    }
}
