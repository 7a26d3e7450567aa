//! How to log in to nodes: the nodes are looked up in the state, their doors are as the agents last said. A node whose
//! door is not known is left out.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use corro_model::batchai::RemoteLoginInformation;
use corro_model::node::LoginDoor;
use corro_model::state::NodeState;
use corro_model::{ApiError, NodeId};
use corro_store::{NodeRecord, State};

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_cluster, find_job};

/// Address and port of the door of each node that has one. In memory: an agent tells it again when it connects.
#[derive(Clone, Default)]
pub struct SshEndpoints(Arc<RwLock<HashMap<NodeId, LoginDoor>>>);

impl SshEndpoints {
    /// What the node's agent says now.
    pub fn set(&self, node: &NodeId, endpoint: Option<LoginDoor>) {
        let mut endpoints = self.0.write().expect("no one panics while holding the doors");
        match endpoint {
            Some(endpoint) => endpoints.insert(node.clone(), endpoint),
            None => endpoints.remove(node),
        };
    }

    fn get(&self, node: &NodeId) -> Option<LoginDoor> {
        self.0.read().expect("no one panics while holding the doors").get(node).cloned()
    }
}

impl App {
    pub fn cluster_logins(
        &self,
        group: &str,
        workspace: &str,
        cluster: &str,
    ) -> Result<Vec<RemoteLoginInformation>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_cluster(&snapshot, group, workspace, cluster)?;
        let mut nodes: Vec<(&NodeId, &NodeRecord)> =
            snapshot.nodes_of(&key).filter(|(_, node)| *node.state() != NodeState::Allocating).collect();
        nodes.sort_by_key(|(_, node)| node.index);
        Ok(nodes.into_iter().filter_map(|(id, _)| self.login(&snapshot, id)).collect())
    }

    /// The nodes that the job uses or used last, as far as they are still there; the master first.
    pub fn job_logins(&self, path: &JobPath) -> Result<Vec<RemoteLoginInformation>, ApiError> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path)?;
        Ok(job.last_nodes().iter().filter_map(|id| self.login(&snapshot, id)).collect())
    }

    fn login(&self, state: &State, node: &NodeId) -> Option<RemoteLoginInformation> {
        state.nodes.get(node)?;
        let LoginDoor { address: ip_address, port } = self.fleet.ssh_endpoints.get(node)?;
        Some(RemoteLoginInformation { node_id: node.clone(), ip_address, port })
    }
}
