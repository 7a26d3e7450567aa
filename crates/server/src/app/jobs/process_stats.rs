//! Resource usage of the processes of running jobs. Agents measure on request: a query waits for their replies and
//! reports which nodes did not reply in time. In memory only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::batchai::engines::straggler;
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::gpu;
use corro_model::node::{TaskStats, ToNode};
use corro_model::{ApiError, NodeId};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_job};

/// Deadline for the replies. Agents need about 200 ms to measure.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Capacity of the message queue per node.
const MAX_PENDING_MESSAGES: usize = 4;

/// Channels to the connected agents, with their last replies.
#[derive(Clone, Default)]
pub struct ProcessStats(Arc<Inner>);

#[derive(Default)]
struct Inner {
    nodes: Mutex<HashMap<NodeId, AgentChannel>>,
    /// Notified after each reply.
    replied: Notify,
}

struct AgentChannel {
    outgoing: mpsc::Sender<ToNode>,
    reply: Option<(Instant, TaskStats)>,
}

impl ProcessStats {
    /// Registers a connected node. The connection sends the messages that it receives from the channel.
    pub fn attach(&self, node: &NodeId) -> (mpsc::Sender<ToNode>, mpsc::Receiver<ToNode>) {
        let (outgoing, messages) = mpsc::channel(MAX_PENDING_MESSAGES);
        self.lock().insert(node.clone(), AgentChannel { outgoing: outgoing.clone(), reply: None });
        (outgoing, messages)
    }

    /// Removes the channel of a closed connection, unless a newer connection has replaced it.
    pub fn detach(&self, node: &NodeId, outgoing: &mpsc::Sender<ToNode>) {
        let mut nodes = self.lock();
        if nodes.get(node).is_some_and(|channel| channel.outgoing.same_channel(outgoing)) {
            nodes.remove(node);
        }
    }

    pub fn record(&self, node: &NodeId, stats: TaskStats) {
        if let Some(channel) = self.lock().get_mut(node) {
            let gpus = gpu::bounded(stats.gpus);
            channel.reply = Some((Instant::now(), TaskStats { gpus, ..stats }));
        }
        self.0.replied.notify_waiters();
    }

    /// Sends a message to a node if it is connected. Dropped if its queue is full.
    pub fn send(&self, node: &NodeId, message: ToNode) {
        if let Some(channel) = self.lock().get(node) {
            let _ = channel.outgoing.try_send(message);
        }
    }

    /// Number of connected nodes.
    pub fn n_connected(&self) -> usize {
        self.lock().len()
    }

    /// Current stats of each node; `None` for one that is not connected or does not reply in time.
    pub async fn query(&self, nodes: &[NodeId]) -> Vec<Option<TaskStats>> {
        let sent = Instant::now();
        nodes.iter().for_each(|node| self.send(node, ToNode::Look));
        let all_replied = async {
            loop {
                let replied = self.0.replied.notified();
                tokio::pin!(replied);
                // Registered before the check, so that no reply is missed.
                replied.as_mut().enable();
                let missing = |node: &&NodeId| match self.lock().get(*node) {
                    Some(channel) => channel.reply.as_ref().is_none_or(|(at, _)| *at < sent),
                    None => false,
                };
                if !nodes.iter().any(|node| missing(&node)) {
                    return;
                }
                replied.await;
            }
        };
        // Nodes that have not replied by then are reported as such.
        let _ = timeout(REPLY_TIMEOUT, all_replied).await;
        let known = self.lock();
        let fresh = |node: &NodeId| {
            let (at, stats) = known.get(node)?.reply.as_ref()?;
            (*at >= sent).then(|| stats.clone())
        };
        nodes.iter().map(fresh).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, AgentChannel>> {
        self.0.nodes.lock().expect("no one panics while holding the channels")
    }
}

impl App {
    /// Processes of a job. A job without nodes is an error, or an empty list with `or_none`.
    pub async fn job_processes(&self, path: &JobPath, or_none: bool) -> Result<JobProcesses, ApiError> {
        let (_, job) = find_job(&self.snapshot(), path)?;
        let (attempt, nodes) = (job.attempt(), job.state().nodes().to_vec());
        if nodes.is_empty() && !or_none {
            let state = job.state().predicate();
            let message = format!("The job {} {state}: it has no processes now. See 'corro job why'", job.name);
            return Err(ApiError::conflict("JobNotRunning", message));
        }
        let replies = self.fleet.process_stats.query(&nodes).await;
        let nodes = nodes.into_iter().zip(replies).map(|(node_id, reply)| {
            let answered = reply.is_some();
            let own = reply.filter(|stats| stats.attempt.as_ref() == Some(&attempt)).unwrap_or_default();
            NodeProcesses { node_id, answered, processes: own.processes, gpus: own.gpus }
        });
        let nodes: Vec<NodeProcesses> = nodes.collect();
        let engines = nodes.iter().flat_map(|node| &node.processes).flat_map(|process| &process.engines);
        let straggler = straggler(engines);
        let timeline = self.fleet.timelines.get(&attempt).map(|timeline| timeline.started);
        Ok(JobProcesses { attempt: attempt.number, nodes, straggler, timeline })
    }
}
