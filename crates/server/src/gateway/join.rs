//! Joining: a one-time token is traded for a node's identity and credential. The token is spent in the same commit that
//! makes the node join, so two agents can never be one node.

use corro_model::batchai::VmPriority;
use corro_model::node::{JoinRequest, NodeCredential};
use corro_model::state::{NodeEvent, NodeState};
use corro_model::{ApiError, NodeId, Secret, Timestamp};
use corro_store::seal::{digest, random};
use corro_store::{NodeRecord, State, Txn};

use super::{Gateway, not_a_node};
use crate::app::instance::hex;

impl Gateway {
    /// A token with which exactly one agent can become `node`; earlier ones for it are void.
    pub fn mint_token(&self, node: &NodeId) -> Secret {
        let token = Secret::new(hex(&random::<32>()));
        let mut links = self.lock();
        links.tokens.retain(|_, other| other != node);
        links.tokens.insert(digest(token.expose()), node.clone());
        token
    }

    /// `None` when the token is good but no cluster wants a node now.
    pub async fn join(&self, request: JoinRequest) -> Result<Option<NodeCredential>, ApiError> {
        let given = digest(request.token.expose());
        let node = {
            let links = self.lock();
            match links.tokens.get(&given) {
                Some(node) => Some(node.clone()),
                None if links.open_token.as_ref() == Some(&given) => None,
                None => return Err(ApiError::unauthorized("The join token is not valid or was used already")),
            }
        };
        let secret = Secret::new(hex(&random::<32>()));
        let instance = self.app.tenant.to_string();
        let (credential_digest, now) = (digest(secret.expose()), self.app.now());
        let commit = self.app.store.commit(move |txn| {
            let joined = take_place(txn, node, credential_digest, now)?;
            Ok::<_, ApiError>(joined.map(|(node, epoch)| NodeCredential { node, epoch, secret, instance }))
        });
        let joined = commit.await?;
        self.lock().tokens.remove(&given);
        Ok(joined)
    }
}

/// Somebody becomes `node`, or whichever is wanted most. `None` when none is.
pub fn take_place(
    txn: &mut Txn,
    node: Option<NodeId>,
    credential_digest: String,
    now: Timestamp,
) -> Result<Option<(NodeId, u64)>, ApiError> {
    let Some(id) = node.or_else(|| wanted_node(txn.state())) else { return Ok(None) };
    txn.node_event(&id, NodeEvent::Joined, now).map_err(|_| not_a_node())?;
    let mut epoch = 0;
    txn.update::<NodeRecord>(&id, |record| {
        record.credential_digest = Some(credential_digest);
        epoch = record.epoch;
    });
    Ok(Some((id, epoch)))
}

/// The oldest node that is asked for and that nobody has become yet; dedicated ones first.
fn wanted_node(state: &State) -> Option<NodeId> {
    let open = state.nodes.iter().filter(|(_, node)| *node.state() == NodeState::Allocating);
    let low = |node: &NodeRecord| {
        let cluster = state.clusters.get(&node.cluster);
        cluster.is_some_and(|cluster| cluster.spec.vm_priority == VmPriority::LowPriority)
    };
    open.min_by_key(|(_, node)| (low(node), node.allocated, node.index)).map(|(id, _)| id.clone())
}
