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
const PATIENCE: Duration = Duration::from_secs(3);

/// Questions to one node that it has not been sent.
const MOST_ASKED: usize = 4;

/// The lines to agents that can be asked, and what they last said.
#[derive(Clone, Default)]
pub struct Figures(Arc<Inner>);

#[derive(Default)]
struct Inner {
    nodes: Mutex<HashMap<NodeId, Line>>,
    /// Rung when an agent has answered.
    told: Notify,
}

struct Line {
    ask: mpsc::Sender<ToNode>,
    told: Option<(Instant, TaskFigures)>,
}

impl Figures {
    /// A node is connected: whoever serves it hears what it is to be asked.
    pub fn attach(&self, node: &NodeId) -> (mpsc::Sender<ToNode>, mpsc::Receiver<ToNode>) {
        let (ask, asked) = mpsc::channel(MOST_ASKED);
        self.lock().insert(node.clone(), Line { ask: ask.clone(), told: None });
        (ask, asked)
    }

    /// The connection with this line has ended; a newer one may have taken its place.
    pub fn detach(&self, node: &NodeId, ask: &mpsc::Sender<ToNode>) {
        let mut nodes = self.lock();
        if nodes.get(node).is_some_and(|line| line.ask.same_channel(ask)) {
            nodes.remove(node);
        }
    }

    pub fn told(&self, node: &NodeId, figures: TaskFigures) {
        if let Some(line) = self.lock().get_mut(node) {
            line.told = Some((Instant::now(), figures));
        }
        self.0.told.notify_waiters();
    }

    /// Tells a node something once, if it is there. One that has that much to do already does not hear it.
    pub fn tell(&self, node: &NodeId, message: ToNode) {
        if let Some(line) = self.lock().get(node) {
            let _ = line.ask.try_send(message);
        }
    }

    /// How many nodes can be asked.
    pub fn connected(&self) -> usize {
        self.lock().len()
    }

    /// What each node says now; `None` for one that is not there or does not answer in time.
    async fn ask(&self, nodes: &[NodeId]) -> Vec<Option<TaskFigures>> {
        let asked = Instant::now();
        nodes.iter().for_each(|node| self.tell(node, ToNode::Look));
        let all_told = async {
            loop {
                let told = self.0.told.notified();
                tokio::pin!(told);
                // From here on nothing is missed.
                told.as_mut().enable();
                let missing = |node: &&NodeId| match self.lock().get(*node) {
                    Some(line) => line.told.as_ref().is_none_or(|(at, _)| *at < asked),
                    None => false,
                };
                if !nodes.iter().any(|node| missing(&node)) {
                    return;
                }
                told.await;
            }
        };
        // Whoever has not answered by then is said not to have.
        let _ = timeout(PATIENCE, all_told).await;
        let known = self.lock();
        let fresh = |node: &NodeId| {
            let (at, figures) = known.get(node)?.told.as_ref()?;
            (*at >= asked).then(|| figures.clone())
        };
        nodes.iter().map(fresh).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Line>> {
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
        let told = self.fleet.process_stats.ask(&nodes).await;
        let nodes = nodes.into_iter().zip(told).map(|(node_id, told)| NodeProcesses {
            node_id,
            answered: told.is_some(),
            processes: told
                .filter(|figures| figures.attempt.as_ref() == Some(&attempt))
                .map_or_else(Vec::new, |f| f.processes),
        });
        let nodes: Vec<NodeProcesses> = nodes.collect();
        let engines = nodes.iter().flat_map(|node| &node.processes).flat_map(|process| &process.engines);
        let straggler = straggler(engines);
        let timeline = self.fleet.timelines.of(&attempt).map(|timeline| timeline.started);
        Ok(JobProcesses { attempt: attempt.number, nodes, straggler, timeline })
    }
}
