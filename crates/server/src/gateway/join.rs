//! Joining of nodes: a one-time token is exchanged for a node's identity and credential. The commit that makes the node join also
//! voids the token, so two agents can never be the same node.

use corro_model::batchai::VmPriority;
use corro_model::node::{JoinRequest, NodeCredential};
use corro_model::state::{NodeEvent, NodeState};
use corro_model::{ApiError, NodeId, Secret, Timestamp};
use corro_store::encryption::{digest, random};
use corro_store::{NodeRecord, State, Txn};

use super::{Gateway, invalid_credential};
use crate::digest::hex;

impl Gateway {
    /// Join token of `node`, for exactly one agent. It is an HMAC of the node's id, so that it stays valid over restarts of the server
    /// for a machine that takes hours to come up; it is void once the node has joined.
    pub fn mint_token(&self, node: &NodeId) -> Secret {
        let proof = self.app.keyed_digest("join as node", node.as_str().as_bytes());
        Secret::new(format!("{node}.{}", hex(&proof)))
    }

    /// The node whose join token this is.
    fn node_of_token(&self, token: &Secret) -> Option<NodeId> {
        let node = NodeId::parse(token.expose().split_once('.')?.0)?;
        // Compared as digests, so that timing reveals nothing about the token.
        (digest(self.mint_token(&node).expose()) == digest(token.expose())).then_some(node)
    }

    /// `None` when the token is valid but no cluster needs a node now.
    pub async fn join(&self, request: JoinRequest) -> Result<Option<NodeCredential>, ApiError> {
        let refused = || ApiError::unauthorized("The join token is not valid or was used already");
        let node = self.node_of_token(&request.token);
        if node.is_none() && self.lock().open_token.as_deref() != Some(&digest(request.token.expose())) {
            return Err(refused());
        }
        let secret = Secret::new(hex(&random::<32>()));
        let instance = self.app.installation.tenant.to_string();
        let (credential_digest, now) = (digest(secret.expose()), self.app.now());
        let commit = self.app.store.commit(move |txn| {
            let joined = assign_node(txn, node, credential_digest, now).map_err(|_| refused())?;
            Ok::<_, ApiError>(joined.map(|(node, epoch)| NodeCredential { node, epoch, secret, instance }))
        });
        commit.await
    }
}

/// Makes an agent `node`, or the most wanted allocating node. `None` when there is none.
pub fn assign_node(
    txn: &mut Txn,
    node: Option<NodeId>,
    credential_digest: String,
    now: Timestamp,
) -> Result<Option<(NodeId, u64)>, ApiError> {
    let Some(id) = node.or_else(|| next_unassigned_node(txn.state())) else { return Ok(None) };
    txn.node_event(&id, NodeEvent::Joined, now).map_err(|_| invalid_credential())?;
    let mut epoch = 0;
    txn.update::<NodeRecord>(&id, |record| {
        record.credential_digest = Some(credential_digest);
        epoch = record.epoch;
    });
    Ok(Some((id, epoch)))
}

/// The oldest allocating node that no agent has joined as; dedicated ones first.
fn next_unassigned_node(state: &State) -> Option<NodeId> {
    let open = state.nodes.iter().filter(|(_, node)| {
        // Nodes assigned to a host are not for other machines.
        *node.state() == NodeState::Allocating && node.host.is_none()
    });
    let low = |node: &NodeRecord| {
        let cluster = state.clusters.get(&node.cluster);
        cluster.is_some_and(|cluster| cluster.spec.vm_priority == VmPriority::LowPriority)
    };
    open.min_by_key(|(_, node)| (low(node), node.allocated, node.index)).map(|(id, _)| id.clone())
}
