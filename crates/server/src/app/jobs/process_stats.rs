//! What the processes of running jobs use. Nodes are asked only when somebody looks: the answer waits a moment for their
//! agents, and says who did not speak in time. In memory alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::batchai::engines::straggler;
use corro_model::batchai::{JobProcesses, NodeProcesses};
use corro_model::node::{TaskFigures, ToNode};
use corro_model::{ApiError, NodeId};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_job};

/// Agents take about a fifth of a second to measure.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Questions to one node that it has not been sent.
const MAX_PENDING_MESSAGES: usize = 4;

/// The lines to agents that can be asked, and what they last said.
#[derive(Clone, Default)]
pub struct ProcessStats(Arc<Inner>);

#[derive(Default)]
struct Inner {
    nodes: Mutex<HashMap<NodeId, AgentChannel>>,
    /// Rung when an agent has answered.
    replied: Notify,
}

struct AgentChannel {
    outgoing: mpsc::Sender<ToNode>,
    reply: Option<(Instant, TaskFigures)>,
}

impl ProcessStats {
    /// A node is connected: whoever serves it hears what it is to be asked.
    pub fn attach(&self, node: &NodeId) -> (mpsc::Sender<ToNode>, mpsc::Receiver<ToNode>) {
        let (outgoing, messages) = mpsc::channel(MAX_PENDING_MESSAGES);
        self.lock().insert(node.clone(), AgentChannel { outgoing: outgoing.clone(), reply: None });
        (outgoing, messages)
    }

    /// The connection with this line has ended; a newer one may have taken its place.
    pub fn detach(&self, node: &NodeId, outgoing: &mpsc::Sender<ToNode>) {
        let mut nodes = self.lock();
        if nodes.get(node).is_some_and(|channel| channel.outgoing.same_channel(outgoing)) {
            nodes.remove(node);
        }
    }

    pub fn record(&self, node: &NodeId, stats: TaskFigures) {
        if let Some(channel) = self.lock().get_mut(node) {
            channel.reply = Some((Instant::now(), stats));
        }
        self.0.replied.notify_waiters();
    }

    /// Tells a node something once, if it is there. One that has that much to do already does not hear it.
    pub fn send(&self, node: &NodeId, message: ToNode) {
        if let Some(channel) = self.lock().get(node) {
            let _ = channel.outgoing.try_send(message);
        }
    }

    /// How many nodes can be asked.
    pub fn n_connected(&self) -> usize {
        self.lock().len()
    }

    /// What each node says now; `None` for one that is not there or does not answer in time.
    async fn query(&self, nodes: &[NodeId]) -> Vec<Option<TaskFigures>> {
        let sent = Instant::now();
        nodes.iter().for_each(|node| self.send(node, ToNode::Look));
        let all_replied = async {
            loop {
                let replied = self.0.replied.notified();
                tokio::pin!(replied);
                // From here on nothing is missed.
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
        // Whoever has not answered by then is said not to have.
        let _ = timeout(REPLY_TIMEOUT, all_replied).await;
        let known = self.lock();
        let fresh = |node: &NodeId| {
            let (at, stats) = known.get(node)?.reply.as_ref()?;
            (*at >= sent).then(|| stats.clone())
        };
        nodes.iter().map(fresh).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, AgentChannel>> {
        self.0.nodes.lock().expect("no one panics while holding the lines")
    }
}

impl App {
    /// A job that runs nowhere is an error, unless it is asked for what may have ended meanwhile (`or_none`).
    pub async fn job_processes(&self, path: &JobPath, or_none: bool) -> Result<JobProcesses, ApiError> {
        let (_, job) = find_job(&self.snapshot(), path)?;
        let (attempt, nodes) = (job.attempt(), job.state().nodes().to_vec());
        if nodes.is_empty() && !or_none {
            let message = format!(
                "The job {} is {}: it has no processes now. 'corro job why' says more",
                job.name,
                job.state().name()
            );
            return Err(ApiError::conflict("JobNotRunning", message));
        }
        let replies = self.fleet.process_stats.query(&nodes).await;
        let nodes = nodes.into_iter().zip(replies).map(|(node_id, reply)| NodeProcesses {
            node_id,
            answered: reply.is_some(),
            processes: reply
                .filter(|stats| stats.attempt.as_ref() == Some(&attempt))
                .map_or_else(Vec::new, |f| f.processes),
        });
        let nodes: Vec<NodeProcesses> = nodes.collect();
        let engines = nodes.iter().flat_map(|node| &node.processes).flat_map(|process| &process.engines);
        let straggler = straggler(engines);
        let timeline = self.fleet.timelines.get(&attempt).map(|timeline| timeline.started);
        Ok(JobProcesses { attempt: attempt.number, nodes, straggler, timeline })
    }
}
