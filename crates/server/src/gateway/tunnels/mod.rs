//! Tunnels to nodes: an order goes out over the session of a node's agent, and the agent dials back with the secret of the
//! order. A secret is valid once, for some seconds, and for the node that it was made for.

mod relay;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use corro_model::node::{NodeCredential, ObservedNode, TunnelOrder, TunnelReply, TunnelTarget};
use corro_model::{ApiError, AttemptId, NodeId, Secret};
use corro_store::encryption::{digest, random};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::Gateway;
use crate::app::jobs::tunnels::{TunnelEnd, TunnelPermit};
use crate::digest::hex;

/// Orders that wait for an agent's session to send them.
pub(super) const MAX_QUEUED_ORDERS: usize = 64;
/// Limit from the order to the agent's reply, which includes its attempts to reach the target and this server.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for SSH sessions to send how they ended when their job has ended.
const SSH_END_GRACE: Duration = Duration::from_secs(2);

/// Orders that were sent, by the digest of their secret.
#[derive(Clone, Default)]
pub(super) struct PendingTunnels(Arc<Mutex<HashMap<String, PendingTunnel>>>);

struct PendingTunnel {
    node: NodeId,
    opened: oneshot::Sender<WebSocket>,
}

/// Removes an order that nobody has claimed.
struct PendingGuard<'a> {
    pending: &'a PendingTunnels,
    digest: String,
}

impl PendingTunnels {
    fn insert(&self, secret: &Secret, node: &NodeId) -> (PendingGuard<'_>, oneshot::Receiver<WebSocket>) {
        let (opened, receiver) = oneshot::channel();
        let digest = digest(secret.expose());
        self.lock().insert(digest.clone(), PendingTunnel { node: node.clone(), opened });
        (PendingGuard { pending: self, digest }, receiver)
    }

    /// Takes the order with this secret if it was made for the node.
    fn claim(&self, node: &NodeId, secret: &str) -> Option<oneshot::Sender<WebSocket>> {
        let mut pending = self.lock();
        let digest = digest(secret);
        pending.get(&digest).filter(|order| order.node == *node)?;
        pending.remove(&digest).map(|order| order.opened)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PendingTunnel>> {
        self.0.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.digest);
    }
}

impl Gateway {
    /// Orders a tunnel from a node's agent, and returns the agent's end once it is connected to the target.
    pub async fn open_tunnel(
        &self,
        node: &NodeId,
        attempt: AttemptId,
        target: TunnelTarget,
    ) -> Result<WebSocket, ApiError> {
        let orders = self.order_queue(node)?;
        let secret = Secret::new(hex(&random::<32>()));
        let (_pending, opened) = self.pending_tunnels.insert(&secret, node);
        let exchange = async {
            let no_session = |_| not_connected(node);
            orders.send(TunnelOrder { secret, attempt, target }).await.map_err(no_session)?;
            let mut socket = opened.await.map_err(|_| not_connected(node))?;
            match read_reply(&mut socket).await {
                Some(TunnelReply::Connected) => Ok(socket),
                Some(TunnelReply::NotReady) => {
                    let message = format!("The job has no processes on node {node} now: the node still prepares it");
                    Err(ApiError::conflict("JobNotReady", message))
                }
                Some(TunnelReply::Refused { reason }) => {
                    let message = format!("Cannot connect to {} on node {node}: {reason}", name_of(target));
                    Err(ApiError::conflict("TunnelRefused", message))
                }
                None => Err(not_connected(node)),
            }
        };
        timeout(REPLY_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            let message = format!(
                "The agent of node {node} opened no tunnel within {} seconds: its log says why",
                REPLY_TIMEOUT.as_secs()
            );
            Err(ApiError::new(504, "NodeDidNotReply", message))
        })
    }

    /// The place of an agent's end of a tunnel. The secret is void from now on.
    pub fn claim_tunnel(
        &self,
        credential: &NodeCredential,
        secret: &str,
    ) -> Result<oneshot::Sender<WebSocket>, ApiError> {
        self.pending_tunnels
            .claim(&credential.node, secret)
            .ok_or_else(|| ApiError::unauthorized("The tunnel's secret is not valid: it was used, or its time is over"))
    }

    /// Relays between a client and an agent until the tunnel ends.
    pub async fn relay_tunnel(self, client: WebSocket, agent: WebSocket, target: TunnelTarget, permit: TunnelPermit) {
        let mut stop = self.stop.clone();
        let (ended, _registration) = permit.split();
        let broken = async {
            tokio::select! {
                end = ended => match end {
                    TunnelEnd::Job(reason) => {
                        if target == TunnelTarget::Ssh {
                            sleep(SSH_END_GRACE).await;
                        }
                        reason
                    }
                    TunnelEnd::Login(reason) => reason.to_owned(),
                },
                () = async { let _ = stop.wait_for(|stop| *stop).await; } => "the server is stopping".to_owned(),
            }
        };
        relay::relay(client, agent, broken).await;
    }

    /// The queue of a connected agent that opens tunnels.
    fn order_queue(&self, node: &NodeId) -> Result<mpsc::Sender<TunnelOrder>, ApiError> {
        let sessions = self.lock();
        let session = sessions.nodes.get(node).filter(|session| session.connected);
        let session = session.ok_or_else(|| not_connected(node))?;
        check_agent(node, &session.observed)?;
        Ok(session.tunnel_orders.clone())
    }
}

/// Whether an agent with this last report opens tunnels.
fn check_agent(node: &NodeId, observed: &ObservedNode) -> Result<(), ApiError> {
    if observed.tunnels {
        return Ok(());
    }
    if *observed == ObservedNode::default() {
        // It has just connected and not reported yet.
        return Err(not_connected(node));
    }
    let message = format!(
        "The agent of node {node} is of an earlier version, which opens no tunnels: start it again with the version that the server runs"
    );
    Err(ApiError::conflict("AgentTooOld", message))
}

async fn read_reply(socket: &mut WebSocket) -> Option<TunnelReply> {
    loop {
        match socket.recv().await? {
            Ok(Message::Text(text)) => return serde_json::from_str(text.as_str()).ok(),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            _ => return None,
        }
    }
}

fn not_connected(node: &NodeId) -> ApiError {
    let message = format!("The agent of node {node} is not connected to the server now: try again in a moment");
    ApiError::new(503, "NodeNotConnected", message)
}

/// The target in a message.
fn name_of(target: TunnelTarget) -> String {
    match target {
        TunnelTarget::Port(port) => format!("port {port}"),
        TunnelTarget::Notebook => "the notebook".to_owned(),
        TunnelTarget::Ssh => "the SSH server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use corro_model::Timestamp;

    use super::*;

    #[test]
    fn a_secret_is_for_one_node_and_one_use() {
        let (pending, secret) = (PendingTunnels::default(), Secret::new("s"));
        let [node, other] = [1, 2].map(|idx| NodeId::new(1, idx, Timestamp::from_millis(0)));
        let (guard, _opened) = pending.insert(&secret, &node);
        assert!(pending.claim(&node, "x").is_none() && pending.claim(&other, "s").is_none());
        assert!(pending.claim(&node, "s").is_some());
        assert!(pending.claim(&node, "s").is_none(), "it was used");
        drop(guard);
        let (guard, _opened) = pending.insert(&secret, &node);
        drop(guard);
        assert!(pending.claim(&node, "s").is_none() && pending.lock().is_empty(), "its time is over");
    }

    #[test]
    fn agents_of_the_previous_version_get_no_order() {
        let node = NodeId::new(1, 1, Timestamp::from_millis(0));
        let code = |report: ObservedNode| check_agent(&node, &report).map_err(|error| (error.status, error.code));
        let old = ObservedNode { ready: true, ..ObservedNode::default() };
        assert_eq!(code(ObservedNode { tunnels: true, ..old.clone() }), Ok(()));
        assert_eq!(code(old), Err((409, "AgentTooOld".to_owned())));
        assert_eq!(code(ObservedNode::default()), Err((503, "NodeNotConnected".to_owned())));
    }
}
