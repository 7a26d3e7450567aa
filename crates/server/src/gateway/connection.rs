//! WebSocket session of a node: checks the credential, then receives observations and sends desired states until either side
//! closes. A newer connection of the same node replaces the older one.

use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket};
use corro_model::ApiError;
use corro_model::node::{FromNode, NodeCredential, ObservedNode, ToNode, TunnelOrder};
use corro_model::state::NodeState;
use corro_store::State;
use corro_store::encryption::digest;
use tokio::sync::{mpsc, watch};

use super::tunnels::MAX_QUEUED_ORDERS;
use super::{AgentSession, Gateway, Outbound, invalid_credential};

/// Largest message accepted from an agent.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// A connection that is silent for this long is closed. Agents send a message every second.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the credential is that of an existing node that was not declared lost since.
pub fn is_valid_credential(state: &State, credential: &NodeCredential) -> bool {
    state.nodes.get(&credential.node).is_some_and(|record| {
        let lost = matches!(record.state(), NodeState::Unusable { lost: true, .. });
        let known = record.credential_digest.as_deref() == Some(&digest(credential.secret.expose()));
        known && !lost && record.epoch == credential.epoch
    })
}

impl Gateway {
    /// Checks the credential against the current state.
    pub fn check_credential(&self, credential: &NodeCredential) -> Result<(), ApiError> {
        let snapshot = self.app.snapshot();
        if is_valid_credential(&snapshot, credential) { Ok(()) } else { Err(invalid_credential()) }
    }

    /// Serves the WebSocket of a node whose credential was checked, until it ends.
    pub async fn serve(self, credential: NodeCredential, mut socket: WebSocket) {
        let node = credential.node;
        let (tunnel_sender, mut tunnel_orders) = mpsc::channel(MAX_QUEUED_ORDERS);
        let (serial, mut outbound) = self.attach(&node, credential.epoch, tunnel_sender);
        let (request_sender, mut requests) = self.app.fleet.process_stats.attach(&node);
        let mut stop = self.stop.clone();
        tracing::debug!(%node, "the node is connected");
        loop {
            tokio::select! {
                () = async { let _ = stop.wait_for(|stop| *stop).await; } => break,
                changed = outbound.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let message = match &*outbound.borrow_and_update() {
                        Outbound::None => continue,
                        Outbound::Desired(desired) => ToNode::Desired((**desired).clone()),
                        Outbound::Fenced(reason) => ToNode::Fenced { reason: reason.clone() },
                    };
                    let last = matches!(message, ToNode::Fenced { .. });
                    let text = serde_json::to_string(&message).expect("messages are plain data");
                    let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(Message::text(text))).await;
                    if last || !matches!(sent, Ok(Ok(()))) {
                        break;
                    }
                }
                Some(request) = next_request(&mut requests, &mut tunnel_orders) => {
                    let text = serde_json::to_string(&request).expect("messages are plain data");
                    let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(Message::text(text))).await;
                    if !matches!(sent, Ok(Ok(()))) {
                        break;
                    }
                }
                received = tokio::time::timeout(READ_TIMEOUT, socket.recv()) => {
                    let Ok(Some(Ok(message))) = received else { break };
                    if !self.on_message(&node, serial, message) {
                        break;
                    }
                }
            }
        }
        self.app.fleet.process_stats.detach(&node, &request_sender);
        self.detach(&node, serial);
        tracing::debug!(%node, "the node is disconnected");
    }

    /// Handles a message. `false` closes the connection.
    fn on_message(&self, node: &corro_model::NodeId, serial: u64, message: Message) -> bool {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return false,
            _ => return true,
        };
        let Ok(message) = serde_json::from_str::<FromNode>(text.as_str()) else {
            tracing::warn!(%node, "invalid message from a node; closing its connection");
            return false;
        };
        let mut sessions = self.lock();
        let Some(session) = sessions.nodes.get_mut(node).filter(|session| session.serial == serial) else {
            return false;
        };
        session.last_message = Instant::now();
        let observed = match message {
            FromNode::Observed(observed) => observed,
            FromNode::Heartbeat => return true,
            FromNode::Figures(figures) => {
                drop(sessions);
                self.app.fleet.process_stats.record(node, figures);
                return true;
            }
            FromNode::Recording(recording) => {
                drop(sessions);
                self.app.fleet.timelines.record(node, recording);
                return true;
            }
        };
        let mut observed = observed;
        // These differ in every message and do not count as a change.
        session.run_time =
            observed.task_run_ms.take().map(|reported| (Duration::from_millis(reported), Instant::now()));
        self.app.fleet.expected_ends.set(node, observed.task_remaining_ms.take().map(Duration::from_millis));
        if session.observed != observed {
            let door = observed.login.clone();
            session.observed = observed;
            sessions.changed.nodes.insert(node.clone());
            drop(sessions);
            self.app.fleet.ssh_endpoints.set(node, door);
            self.changed.notify_one();
        }
        true
    }

    fn attach(
        &self,
        node: &corro_model::NodeId,
        epoch: u64,
        tunnel_orders: mpsc::Sender<TunnelOrder>,
    ) -> (u64, watch::Receiver<Outbound>) {
        let mut sessions = self.lock();
        let old = sessions.nodes.remove(node);
        let serial = old.map_or(0, |old| old.serial) + 1;
        let (outbound, receiver) = watch::channel(Outbound::None);
        let observed = ObservedNode::default();
        let session = AgentSession {
            epoch,
            serial,
            last_message: Instant::now(),
            observed,
            run_time: None,
            outbound,
            tunnel_orders,
            connected: true,
        };
        sessions.nodes.insert(node.clone(), session);
        sessions.changed.nodes.insert(node.clone());
        sessions.changed.reconnected.insert(node.clone());
        drop(sessions);
        self.changed.notify_one();
        (serial, receiver)
    }

    fn detach(&self, node: &corro_model::NodeId, serial: u64) {
        let mut sessions = self.lock();
        if let Some(session) = sessions.nodes.get_mut(node).filter(|session| session.serial == serial) {
            session.connected = false;
            sessions.changed.nodes.insert(node.clone());
        }
        drop(sessions);
        self.changed.notify_one();
    }
}

/// Next request to the agent beside its desired state. `None` once both queues are closed.
async fn next_request(
    requests: &mut mpsc::Receiver<ToNode>,
    tunnel_orders: &mut mpsc::Receiver<TunnelOrder>,
) -> Option<ToNode> {
    tokio::select! {
        Some(request) = requests.recv() => Some(request),
        Some(order) = tunnel_orders.recv() => Some(ToNode::Tunnel(order)),
        else => None,
    }
}
