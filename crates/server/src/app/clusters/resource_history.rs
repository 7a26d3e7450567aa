//! CPU, memory and GPUs of the tasks on each node over time. A loop asks the nodes that run jobs for one measurement every few seconds; the
//! last half hour is kept in full, and a day as averages. In memory only, and bounded per node: a restarted server begins anew. Nodes
//! without a task are not asked, so they have no points.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::batchai::{JobResources, NodeResources, ResourcePoint};
use corro_model::gpu::{GpuReading, reading};
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
/// A state of GPUs that is older is not shown: the node has not answered since.
const MAX_GPU_STATE_AGE: Duration = Duration::from_secs(30);

/// Measurements of all nodes.
#[derive(Clone, Default)]
pub struct ResourceHistory(Arc<Mutex<HashMap<NodeId, NodeHistory>>>);

#[derive(Default)]
struct NodeHistory {
    recent: VecDeque<Sample>,
    averages: VecDeque<Sample>,
    /// Measurements since the last average.
    pending: Vec<Sample>,
    /// The GPUs of the last measurement.
    gpus: Option<GpuState>,
}

/// State of the GPUs of a node's task.
#[derive(Clone, Debug)]
pub struct GpuState {
    pub attempt: Arc<AttemptId>,
    pub readings: Vec<GpuReading>,
    measured: Instant,
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
        history.samples().filter(|sample| is_wanted(sample)).map(|sample| sample.point.clone()).collect()
    }

    /// State of the GPUs of a node's task, if it was measured lately.
    pub fn gpus(&self, node: &NodeId) -> Option<GpuState> {
        let histories = self.lock();
        let state = histories.get(node)?.gpus.as_ref()?;
        (state.measured.elapsed() < MAX_GPU_STATE_AGE).then(|| state.clone())
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
            gpus: stats.gpus.iter().map(GpuReading::point).collect(),
        };
        let measured = Instant::now();
        self.gpus = Some(GpuState { attempt: Arc::clone(&attempt), readings: stats.gpus, measured });
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
        gpus: reading::average(samples.iter().flat_map(|sample| &sample.point.gpus)),
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
        let history = &self.fleet.resource_history;
        let points = history.points(&node_id, |_| true);
        let gpus = history.gpus(&node_id).map_or_else(Vec::new, |state| state.readings);
        Ok(NodeResources { node_id, points, gpus })
    }

    /// Resource use of a job's last attempt on each of its nodes that still exists.
    pub fn job_resources(&self, path: &JobPath) -> Result<JobResources, ApiError> {
        let (_, job) = find_job(&self.snapshot(), path)?;
        let attempt = job.attempt();
        let history = &self.fleet.resource_history;
        let own_gpus = |node: &NodeId| history.gpus(node).filter(|state| *state.attempt == attempt);
        let nodes = job.last_nodes().iter().map(|node| NodeResources {
            node_id: node.clone(),
            points: history.points(node, |sample| *sample.attempt == attempt),
            gpus: own_gpus(node).map_or_else(Vec::new, |state| state.readings),
        });
        Ok(JobResources { attempt: attempt.number, nodes: nodes.collect() })
    }
}

#[cfg(test)]
mod tests {
    use corro_model::batchai::RankStats;
    use corro_model::gpu::GpuPoint;

    use super::*;

    fn record(history: &mut NodeHistory, at: usize, attempt: u32, cpu_percent: f64) {
        let process = |cpu_percent| RankStats { cpu_percent, memory_bytes: 500, ..RankStats::default() };
        let attempt = Some(AttemptId { job: "j".to_owned(), number: attempt });
        let gpu = GpuReading { utilization_percent: Some(cpu_percent as u32), ..GpuReading::default() };
        let stats = TaskStats { attempt, processes: vec![process(cpu_percent), process(0.0)], gpus: vec![gpu] };
        history.record(Timestamp::from_millis(at as i64 * SAMPLE_INTERVAL.as_millis() as i64), stats);
    }

    #[test]
    fn old_samples_become_averages_and_the_number_is_bounded() {
        let mut history = NodeHistory::default();
        for at in 0..20_000 {
            record(&mut history, at, 1, (at % 2) as f64 * 100.0);
        }
        let points: Vec<ResourcePoint> = history.samples().map(|sample| sample.point.clone()).collect();
        assert!(points.len() <= MAX_RECENT + MAX_AVERAGES, "{}", points.len());
        assert!(points.is_sorted_by_key(|point| point.time));
        assert_eq!((points[0].cpu_percent, points[0].memory_bytes), (50.0, 990), "two processes, rounded down");
        assert_eq!(points.last().map(|last| (last.cpu_percent, last.memory_bytes)), Some((100.0, 1000)));
    }

    #[test]
    fn gpus_are_averaged_and_their_last_state_is_kept_for_a_moment() {
        let histories = ResourceHistory::default();
        let node = NodeId::new(1, 1, Timestamp::default());
        assert!(histories.gpus(&node).is_none());
        for at in 0..2 * MAX_RECENT {
            record(histories.lock().entry(node.clone()).or_default(), at, 1, (at % 2) as f64 * 100.0);
        }
        let points = histories.points(&node, |_| true);
        let utilization =
            |point: &ResourcePoint| point.gpus.iter().map(|gpu: &GpuPoint| gpu.utilization_percent).collect();
        let (first, last): (Vec<_>, Vec<_>) = (utilization(&points[0]), utilization(&points[points.len() - 1]));
        assert_eq!((first, last), (vec![Some(50.0)], vec![Some(100.0)]));
        let state = histories.gpus(&node).expect("just measured");
        assert_eq!((state.attempt.number, state.readings[0].utilization_percent), (1, Some(100)));
        let before = Instant::now().checked_sub(MAX_GPU_STATE_AGE).expect("the machine runs longer");
        histories
            .lock()
            .values_mut()
            .for_each(|history| history.gpus.iter_mut().for_each(|gpus| gpus.measured = before));
        assert!(histories.gpus(&node).is_none(), "the node does not answer");
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
