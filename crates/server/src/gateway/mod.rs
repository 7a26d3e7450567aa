//! The agents' door: joining, one WebSocket per node, what each node last observed, and what it is told. Entered by
//! `http` with upgraded connections and by `reconcile`, which reads observations and publishes desired states. Decides
//! nothing about jobs.

mod connection;
mod hosts;
mod join;
mod wheels;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::{ApiError, NodeId};
use tokio::sync::{Notify, watch};

use crate::app::App;

pub use connection::{MAX_MESSAGE_BYTES, is_valid_credential};
pub use join::assign_node;

#[derive(Clone)]
pub struct Gateway {
    app: App,
    sessions: Arc<Mutex<Sessions>>,
    /// Rung when an observation changed.
    pub changed: Arc<Notify>,
    /// Connections end when it turns true.
    stop: watch::Receiver<bool>,
    /// Where the wheels lie that nodes may fetch.
    wheels: Option<Arc<Path>>,
}

struct Sessions {
    /// Silence is counted from here for nodes that have not been heard since the start.
    started: Instant,
    nodes: HashMap<NodeId, AgentSession>,
    /// What is new since somebody last looked.
    changed: ChangedNodes,
    /// Digest of the token with which any machine may take up a wanted node.
    open_token: Option<String>,
}

/// What is known of one node's agent.
struct AgentSession {
    epoch: u64,
    /// Tells a connection from its successor.
    serial: u64,
    last_message: Instant,
    observed: ObservedNode,
    /// How long its task had run by its own clock, and when it said so.
    run_time: Option<(Duration, Instant)>,
    outbound: watch::Sender<Outbound>,
    connected: bool,
}

impl AgentSession {
    fn observation(&self) -> NodeObservation {
        NodeObservation {
            epoch: self.epoch,
            connected: self.connected,
            silent_for: self.last_message.elapsed(),
            observed: self.observed.clone(),
            run_time: self.run_time(),
        }
    }

    fn run_time(&self) -> Option<Duration> {
        self.run_time.map(|(reported, at)| reported + at.elapsed())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outbound {
    /// Nothing was decided yet.
    None,
    Desired(Box<DesiredNode>),
    Fenced(String),
}

/// Which nodes have something new about them. A heartbeat is nothing new.
#[derive(Clone, Debug, Default)]
pub struct ChangedNodes {
    /// They came, went, or observed something else than before.
    pub nodes: BTreeSet<NodeId>,
    /// Of those, the ones with a new connection, which have been told nothing yet.
    pub reconnected: BTreeSet<NodeId>,
}

/// One node as seen from here at one moment.
#[derive(Clone, Debug)]
pub struct NodeObservation {
    pub epoch: u64,
    pub connected: bool,
    pub silent_for: Duration,
    pub observed: ObservedNode,
    /// How long the task it observes has run, by monotonic clocks alone: the node's until it last said so, this machine's since. `None`
    /// for agents that do not say it.
    pub run_time: Option<Duration>,
}

impl NodeObservation {
    /// Is somebody there who will still be there for the next order?
    pub fn is_available(&self) -> bool {
        self.connected && !self.observed.ending
    }
}

impl Gateway {
    pub fn new(app: App, open_token: Option<&corro_model::Secret>, stop: watch::Receiver<bool>) -> Self {
        let open_token = open_token.map(|token| corro_store::seal::digest(token.expose()));
        let (nodes, changed) = (HashMap::new(), ChangedNodes::default());
        let sessions = Sessions { started: Instant::now(), nodes, changed, open_token };
        Self { app, sessions: Arc::new(Mutex::new(sessions)), changed: Arc::new(Notify::new()), stop, wheels: None }
    }

    /// The same door, with the wheels in `directory` for every node.
    pub fn with_wheels(self, directory: &Path) -> Self {
        Self { wheels: Some(Arc::from(directory)), ..self }
    }

    /// Brings what was seen up to date, and says where something is new since the last time. How long nodes have been
    /// silent, and their tasks run, is looked up for those, and for all others only with `update_silence`: that is all that changes
    /// without news.
    pub fn refresh(&self, observations: &mut BTreeMap<NodeId, NodeObservation>, update_silence: bool) -> ChangedNodes {
        let mut sessions = self.lock();
        let changed = std::mem::take(&mut sessions.changed);
        for node in &changed.nodes {
            match sessions.nodes.get(node) {
                Some(session) => _ = observations.insert(node.clone(), session.observation()),
                None => _ = observations.remove(node),
            }
        }
        if update_silence {
            for (node, observation) in observations {
                if let Some(session) = sessions.nodes.get(node) {
                    (observation.silent_for, observation.run_time) =
                        (session.last_message.elapsed(), session.run_time());
                }
            }
        }
        changed
    }

    /// How long a node that was never heard has had the chance to speak.
    pub fn uptime(&self) -> Duration {
        self.lock().started.elapsed()
    }

    /// Tells a connected node what it should be; sent only when it differs from what it was told last.
    pub fn publish(&self, node: &NodeId, desired: DesiredNode) {
        if let Some(session) = self.lock().nodes.get(node) {
            let outbound = Outbound::Desired(Box::new(desired));
            session.outbound.send_if_modified(|current| {
                let changed = *current != outbound;
                *current = outbound;
                changed
            });
        }
    }

    /// Cuts off a node of this epoch that is no longer ours, and forgets it.
    pub fn fence(&self, node: &NodeId, epoch: u64, reason: &str) {
        let mut sessions = self.lock();
        // One with a newer epoch may have come since somebody looked.
        if sessions.nodes.get(node).is_some_and(|session| session.epoch == epoch)
            && let Some(session) = sessions.nodes.remove(node)
        {
            self.app.doors.set(node, None);
            self.app.expected_ends.set(node, None);
            sessions.changed.nodes.insert(node.clone());
            session.outbound.send_replace(Outbound::Fenced(reason.to_owned()));
        }
    }

    /// Counts everybody's silence from now on.
    pub fn reset_silence(&self) {
        let mut sessions = self.lock();
        sessions.started = Instant::now();
        sessions.nodes.values_mut().for_each(|session| session.last_message = Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().expect("no one panics while holding the links")
    }
}

fn invalid_credential() -> ApiError {
    ApiError::unauthorized("The node's credential is not valid: it was removed or declared lost")
}
