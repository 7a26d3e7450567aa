//! CPU and memory of the tasks on each node over time. A loop asks the nodes that run jobs for one measurement every few seconds; the
//! last half hour is kept in full, and a day as averages. In memory only, and bounded per node: a restarted server begins anew. Nodes
//! without a task are not asked, so they have no points.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use corro_model::batchai::{JobResources, NodeResources, ResourcePoint};
use corro_model::node::TaskStats;
use corro_model::state::NodeState;
use corro_model::{ApiError, AttemptId, NodeId, Timestamp};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_cluster, find_job};

/// Time between two measurements of a node.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RECENT: usize = 180;
/// Measurements of which one average is kept: five minutes.
const SAMPLES_PER_AVERAGE: usize = 30;
const MAX_AVERAGES: usize = 288;

/// Measurements of all nodes.
#[derive(Clone, Default)]
pub struct ResourceHistory(Arc<Mutex<HashMap<NodeId, NodeHistory>>>);

#[derive(Default)]
struct NodeHistory {
    recent: VecDeque<Sample>,
    averages: VecDeque<Sample>,
    /// Measurements since the last average.
    pending: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    /// Shared by the samples of an attempt.
    attempt: Arc<AttemptId>,
    point: ResourcePoint,
}

impl ResourceHistory {
    /// Measures all running nodes until the server stops.
    pub async fn run(self, app: App, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let snapshot = app.snapshot();
            let nodes = snapshot.nodes.iter();
            let is_running = |state: &NodeState| matches!(state, NodeState::Running { .. });
            let running: Vec<NodeId> =
                nodes.filter(|(_, node)| is_running(node.state())).map(|(id, _)| id.clone()).collect();
            let replies = app.fleet.process_stats.query(&running).await;
            let mut histories = self.lock();
            let existing: HashSet<&NodeId> = snapshot.nodes.keys().collect();
            histories.retain(|node, _| existing.contains(node));
            for (node, stats) in running.into_iter().zip(replies) {
                if let Some(stats) = stats {
                    histories.entry(node).or_default().record(app.now(), stats);
                }
            }
        }
    }

    fn points(&self, node: &NodeId, is_wanted: impl Fn(&Sample) -> bool) -> Vec<ResourcePoint> {
        let histories = self.lock();
        let Some(history) = histories.get(node) else { return Vec::new() };
        history.samples().filter(|sample| is_wanted(sample)).map(|sample| sample.point).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, NodeHistory>> {
        self.0.lock().expect("no one panics while holding the measurements")
    }
}

impl NodeHistory {
    fn record(&mut self, now: Timestamp, stats: TaskStats) {
        let Some(attempt) = stats.attempt else { return };
        let last = self.recent.back().map(|sample| &sample.attempt).filter(|last| ***last == attempt);
        let attempt = last.cloned().unwrap_or_else(|| Arc::new(attempt));
        let point = ResourcePoint {
            time: now,
            cpu_percent: stats.processes.iter().map(|process| process.cpu_percent).sum(),
            memory_bytes: stats.processes.iter().map(|process| process.memory_bytes).sum(),
        };
        // An average is that of one attempt.
        if self.pending.first().is_some_and(|first| first.attempt != attempt) {
            self.pending.clear();
        }
        let sample = Sample { attempt, point };
        self.pending.push(sample.clone());
        push_bounded(&mut self.recent, sample, MAX_RECENT);
        if self.pending.len() == SAMPLES_PER_AVERAGE {
            push_bounded(&mut self.averages, average(&self.pending), MAX_AVERAGES);
            self.pending.clear();
        }
    }

    /// Averages from before the recent samples, then these.
    fn samples(&self) -> impl Iterator<Item = &Sample> {
        let first = self.recent.front().map(|sample| sample.point.time);
        let older = self.averages.iter().filter(move |sample| first.is_some_and(|first| sample.point.time < first));
        older.chain(&self.recent)
    }
}

fn push_bounded(samples: &mut VecDeque<Sample>, sample: Sample, limit: usize) {
    if samples.len() == limit {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The mean of samples of one attempt, at the time of the last.
fn average(samples: &[Sample]) -> Sample {
    let last = samples.last().expect("an average of at least one sample");
    let count = samples.len() as u64;
    let point = ResourcePoint {
        time: last.point.time,
        cpu_percent: samples.iter().map(|sample| sample.point.cpu_percent).sum::<f64>() / count as f64,
        memory_bytes: samples.iter().map(|sample| sample.point.memory_bytes / count).sum(),
    };
    Sample { attempt: last.attempt.clone(), point }
}

impl App {
    /// Resource use of a node while it ran tasks, oldest first.
    pub fn node_resources(&self, names: (&str, &str, &str), node: &str) -> Result<NodeResources, ApiError> {
        let (group, workspace, cluster) = names;
        let snapshot = self.snapshot();
        let (key, _) = find_cluster(&snapshot, group, workspace, cluster)?;
        let node_id = NodeId::parse(node).filter(|id| snapshot.nodes.get(id).is_some_and(|found| found.cluster == key));
        let node_id = node_id.ok_or_else(|| {
            let message = format!("The cluster {cluster} has no node {node}: see 'corro node list'");
            ApiError::new(404, "NodeNotFound", message)
        })?;
        let points = self.fleet.resource_history.points(&node_id, |_| true);
        Ok(NodeResources { node_id, points })
    }

    /// Resource use of a job's last attempt on each of its nodes that still exists.
    pub fn job_resources(&self, path: &JobPath) -> Result<JobResources, ApiError> {
        let (_, job) = find_job(&self.snapshot(), path)?;
        let attempt = job.attempt();
        let nodes = job.last_nodes().iter().map(|node| NodeResources {
            node_id: node.clone(),
            points: self.fleet.resource_history.points(node, |sample| *sample.attempt == attempt),
        });
        Ok(JobResources { attempt: attempt.number, nodes: nodes.collect() })
    }
}

#[cfg(test)]
mod tests {
    use corro_model::batchai::RankStats;

    use super::*;

    fn record(history: &mut NodeHistory, at: usize, attempt: u32, cpu_percent: f64) {
        let process = |cpu_percent| RankStats { cpu_percent, memory_bytes: 500, ..RankStats::default() };
        let attempt = Some(AttemptId { job: "j".to_owned(), number: attempt });
        let stats = TaskStats { attempt, processes: vec![process(cpu_percent), process(0.0)] };
        history.record(Timestamp::from_millis(at as i64 * SAMPLE_INTERVAL.as_millis() as i64), stats);
    }

    #[test]
    fn old_samples_become_averages_and_the_number_is_bounded() {
        let mut history = NodeHistory::default();
        for at in 0..20_000 {
            record(&mut history, at, 1, (at % 2) as f64 * 100.0);
        }
        let points: Vec<ResourcePoint> = history.samples().map(|sample| sample.point).collect();
        assert!(points.len() <= MAX_RECENT + MAX_AVERAGES, "{}", points.len());
        assert!(points.is_sorted_by_key(|point| point.time));
        assert_eq!((points[0].cpu_percent, points[0].memory_bytes), (50.0, 990), "two processes, rounded down");
        assert_eq!(points.last().map(|last| (last.cpu_percent, last.memory_bytes)), Some((100.0, 1000)));
    }

    #[test]
    fn attempts_are_not_mixed() {
        let mut history = NodeHistory::default();
        (0..SAMPLES_PER_AVERAGE - 1).for_each(|at| record(&mut history, at, 1, 100.0));
        (100..100 + SAMPLES_PER_AVERAGE).for_each(|at| record(&mut history, at, 2, 10.0));
        assert_eq!(history.averages.len(), 1);
        assert!((history.averages[0].point.cpu_percent - 10.0).abs() < 1e-9);
        let second = history.samples().filter(|sample| sample.attempt.number == 2).count();
        assert_eq!(second, SAMPLES_PER_AVERAGE);
        history.record(Timestamp::from_millis(1), TaskStats::default());
        assert_eq!(history.recent.len(), 2 * SAMPLES_PER_AVERAGE - 1, "a node without a task has no point");
    }
}
