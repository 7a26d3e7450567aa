//! Horovod timelines of running jobs, recorded on request: agents make their ranks record for some seconds, and the
//! results are merged (`merge`). The last few are kept in memory.

mod merge;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corro_model::batchai::{JobTimeline, TimelineParameters, TimelineState};
use corro_model::node::{FromRecording, ToNode};
use corro_model::{ApiError, AttemptId, NodeId};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_job};
use merge::RankTimeline;

/// Limit on the bytes of all ranks of a job.
const MAX_TOTAL_BYTES: u64 = 32 << 20;
/// Time for the uploads after the recording has ended.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMELINES: usize = 4;

#[derive(Clone, Default)]
pub struct Timelines(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Newest last.
    recordings: Mutex<Vec<Recording>>,
    /// Notified when a node has sent everything.
    received: Notify,
}

struct Recording {
    attempt: AttemptId,
    number: u64,
    timeline: Arc<JobTimeline>,
    recorded: Vec<RankTimeline>,
    /// Nodes that have not sent everything yet.
    pending: BTreeSet<NodeId>,
}

impl Timelines {
    /// Stores the timeline of one rank, or the end of a node's upload.
    pub fn record(&self, node: &NodeId, message: FromRecording) {
        let mut recordings = self.lock();
        let Some(one) = recordings.iter_mut().find(|one| one.number == message.number && one.pending.contains(node))
        else {
            return;
        };
        let n_bytes = |all: &[RankTimeline]| all.iter().map(|one| one.text.len() as u64).sum::<u64>();
        match message.rank {
            Some((rank, text)) if n_bytes(&one.recorded) + text.len() as u64 <= 2 * MAX_TOTAL_BYTES => {
                one.recorded.push(RankTimeline { node: node.clone(), rank, text });
            }
            Some(_) => {}
            None => {
                one.pending.remove(node);
            }
        }
        drop(recordings);
        self.0.received.notify_waiters();
    }

    pub fn get(&self, attempt: &AttemptId) -> Option<Arc<JobTimeline>> {
        self.lock().iter().rev().find(|one| one.attempt == *attempt).map(|one| one.timeline.clone())
    }

    /// Waits until all nodes have sent their timelines, and merges them.
    async fn gather(self, number: u64, recording: Duration) {
        let all_received = async {
            loop {
                let received = self.0.received.notified();
                tokio::pin!(received);
                received.as_mut().enable();
                if !self.lock().iter().any(|one| one.number == number && !one.pending.is_empty()) {
                    return;
                }
                received.await;
            }
        };
        let _ = timeout(recording + UPLOAD_TIMEOUT, all_received).await;
        let taken =
            self.lock().iter_mut().find(|one| one.number == number).map(|one| std::mem::take(&mut one.recorded));
        let Some(recorded) = taken else { return };
        let ranks = recorded.len();
        let Ok((trace_events, dropped)) = tokio::task::spawn_blocking(move || merge::merge(recorded)).await else {
            return;
        };
        if let Some(one) = self.lock().iter_mut().find(|one| one.number == number) {
            let silent = std::mem::take(&mut one.pending).into_iter().collect();
            let state = TimelineState::Done;
            let known = (*one.timeline).clone();
            one.timeline = Arc::new(JobTimeline { state, ranks, dropped, silent, trace_events, ..known });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Recording>> {
        self.0.recordings.lock().expect("no one panics while holding the timelines")
    }
}

impl App {
    pub async fn record_timeline(&self, path: &JobPath, wanted: TimelineParameters) -> Result<JobTimeline, ApiError> {
        let most = TimelineParameters::MAX_SECONDS;
        if !(0.1..=most).contains(&wanted.seconds) {
            let message = format!("seconds is {}: give 0.1 to {most}", wanted.seconds);
            return Err(ApiError::invalid("seconds", message));
        }
        let (_, job) = find_job(&self.snapshot(), path)?;
        let (attempt, nodes) = (job.attempt(), job.state().nodes().to_vec());
        if nodes.is_empty() {
            let state = job.state().predicate();
            let message = format!("The job {} {state}: only a running job can be recorded", job.name);
            return Err(ApiError::conflict("JobNotRunning", message));
        }
        // Engines accept only numbers that they have not seen. These increase with time, across restarts too.
        let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
        let timeline = JobTimeline {
            state: TimelineState::Recording,
            started: self.now(),
            seconds: wanted.seconds,
            attempt: attempt.number,
            ranks: 0,
            dropped: 0,
            silent: Vec::new(),
            trace_events: Vec::new(),
        };
        {
            let mut recordings = self.fleet.timelines.lock();
            if recordings.iter().any(|one| one.attempt == attempt && one.timeline.state == TimelineState::Recording) {
                let message = format!("A timeline of the job {} is being recorded: wait for it", job.name);
                return Err(ApiError::conflict("TimelineIsRecording", message));
            }
            recordings.retain(|one| one.attempt != attempt);
            let n_over = (recordings.len() + 1).saturating_sub(MAX_TIMELINES);
            recordings.drain(..n_over);
            let (timeline, pending) = (Arc::new(timeline.clone()), nodes.iter().cloned().collect());
            recordings.push(Recording { attempt, number, timeline, recorded: Vec::new(), pending });
        }
        let most_bytes = MAX_TOTAL_BYTES / nodes.len() as u64;
        let recording = Duration::from_secs_f64(wanted.seconds);
        let order = ToNode::Record { number, millis: recording.as_millis() as u64, most_bytes };
        for node in &nodes {
            self.fleet.process_stats.send(node, order.clone());
        }
        tokio::spawn(self.fleet.timelines.clone().gather(number, recording));
        Ok(timeline)
    }

    pub fn job_timeline(&self, path: &JobPath) -> Result<Arc<JobTimeline>, ApiError> {
        let (_, job) = find_job(&self.snapshot(), path)?;
        self.fleet.timelines.get(&job.attempt()).ok_or_else(|| {
            let message = format!(
                "No timeline of the job {} was recorded: record one with 'corro job timeline {}'",
                job.name, job.name
            );
            ApiError::new(404, "TimelineNotFound", message)
        })
    }
}
