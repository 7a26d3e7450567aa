//! Gateway to the agents: joining, one WebSocket session per node, each node's last observation and desired state, tunnels. Decides
//! nothing about jobs: the reconciler reads observations and publishes desired states.

mod connection;
mod hosts;
mod join;
mod tunnels;
mod wheels;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::node::{DesiredNode, ObservedNode, TunnelOrder};
use corro_model::{ApiError, NodeId};
use tokio::sync::{Notify, mpsc, watch};

use crate::app::App;

pub use connection::{MAX_MESSAGE_BYTES, is_valid_credential};
pub use join::assign_node;
use tunnels::PendingTunnels;

#[derive(Clone)]
pub struct Gateway {
    app: App,
    sessions: Arc<Mutex<Sessions>>,
    /// Notified when an observation changed.
    pub changed: Arc<Notify>,
    /// Sessions end when it turns true.
    stop: watch::Receiver<bool>,
    /// Directory of the Python wheels that nodes may fetch.
    wheels: Option<Arc<Path>>,
    pending_tunnels: PendingTunnels,
}

struct Sessions {
    /// Nodes that have not connected since count as silent from here on.
    started: Instant,
    nodes: HashMap<NodeId, AgentSession>,
    /// Changes since the last `refresh`.
    changed: ChangedNodes,
    /// Digest of the token with which any machine may join as an allocating node.
    open_token: Option<String>,
}

/// The session of one node's agent; stays after a disconnect until the node is fenced.
struct AgentSession {
    epoch: u64,
    /// Distinguishes a connection from its successor.
    serial: u64,
    last_message: Instant,
    observed: ObservedNode,
    /// Run time of its task by the node's clock, and when it was reported.
    run_time: Option<(Duration, Instant)>,
    outbound: watch::Sender<Outbound>,
    tunnel_orders: mpsc::Sender<TunnelOrder>,
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
    /// Nothing was published yet.
    None,
    Desired(Box<DesiredNode>),
    Fenced(String),
}

/// Nodes whose observation changed. A heartbeat is no change.
#[derive(Clone, Debug, Default)]
pub struct ChangedNodes {
    /// Connected, disconnected, or with a different observation.
    pub nodes: BTreeSet<NodeId>,
    /// Those of them with a new connection, which have received no desired state yet.
    pub reconnected: BTreeSet<NodeId>,
}

/// State of a node as known to the gateway at one moment.
#[derive(Clone, Debug)]
pub struct NodeObservation {
    pub epoch: u64,
    pub connected: bool,
    pub silent_for: Duration,
    pub observed: ObservedNode,
    /// Run time of its task by monotonic clocks: the node's until its last report, this machine's since. `None` for agents of
    /// earlier versions, which do not report it.
    pub run_time: Option<Duration>,
}

impl NodeObservation {
    /// Whether the agent is connected and not shutting down.
    pub fn is_available(&self) -> bool {
        self.connected && !self.observed.ending
    }
}

impl Gateway {
    pub fn new(app: App, open_token: Option<&corro_model::Secret>, stop: watch::Receiver<bool>) -> Self {
        let open_token = open_token.map(|token| corro_store::encryption::digest(token.expose()));
        let (nodes, changed) = (HashMap::new(), ChangedNodes::default());
        let sessions = Sessions { started: Instant::now(), nodes, changed, open_token };
        let (sessions, changed) = (Arc::new(Mutex::new(sessions)), Arc::new(Notify::new()));
        Self { app, sessions, changed, stop, wheels: None, pending_tunnels: PendingTunnels::default() }
    }

    /// Serves the wheels in `directory` to nodes.
    pub fn with_wheels(self, directory: &Path) -> Self {
        Self { wheels: Some(Arc::from(directory)), ..self }
    }

    /// Updates `observations` and returns the nodes that changed since the last call. Silence and run times are updated for those
    /// nodes, and with `update_silence` for all others too: nothing else changes without a message.
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

    /// Time since the start of the gateway, in which nodes without a heartbeat could connect.
    pub fn uptime(&self) -> Duration {
        self.lock().started.elapsed()
    }

    /// Sets a node's desired state; it is sent only if it differs from the last.
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

    /// Disconnects a node of this epoch that no longer belongs to the server, and removes its session.
    pub fn fence(&self, node: &NodeId, epoch: u64, reason: &str) {
        let mut sessions = self.lock();
        // A node with a newer epoch may have connected meanwhile.
        if sessions.nodes.get(node).is_some_and(|session| session.epoch == epoch)
            && let Some(session) = sessions.nodes.remove(node)
        {
            self.app.fleet.ssh_endpoints.set(node, None);
            self.app.fleet.expected_ends.set(node, None);
            sessions.changed.nodes.insert(node.clone());
            session.outbound.send_replace(Outbound::Fenced(reason.to_owned()));
        }
    }

    /// Restarts the silence clocks of all nodes.
    pub fn reset_silence(&self) {
        let mut sessions = self.lock();
        sessions.started = Instant::now();
        sessions.nodes.values_mut().for_each(|session| session.last_message = Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

fn invalid_credential() -> ApiError {
    ApiError::unauthorized("The node's credential is not valid: it was removed or declared lost")
}
