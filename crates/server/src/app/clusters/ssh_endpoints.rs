//! SSH login information of nodes. Nodes come from the state, endpoints from the agents' reports. Nodes without a known
//! endpoint are omitted.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use corro_model::batchai::RemoteLoginInformation;
use corro_model::node::SshEndpoint;
use corro_model::state::NodeState;
use corro_model::{ApiError, NodeId};
use corro_store::{NodeRecord, State};

use crate::app::App;
use crate::app::resources::lookup::{JobPath, find_cluster, find_job};

/// Address and port of each node's SSH server. In memory only: agents report again after each connect.
#[derive(Clone, Default)]
pub struct SshEndpoints(Arc<RwLock<HashMap<NodeId, SshEndpoint>>>);

impl SshEndpoints {
    /// Records an agent's report; `None` removes the endpoint.
    pub fn set(&self, node: &NodeId, endpoint: Option<SshEndpoint>) {
        let mut endpoints = self.0.write().expect("no one panics while holding the endpoints");
        match endpoint {
            Some(endpoint) => endpoints.insert(node.clone(), endpoint),
            None => endpoints.remove(node),
        };
    }

    fn get(&self, node: &NodeId) -> Option<SshEndpoint> {
        self.0.read().expect("no one panics while holding the endpoints").get(node).cloned()
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

    /// Nodes that the job uses or used last and that still exist; the master first.
    pub fn job_logins(&self, path: &JobPath) -> Result<Vec<RemoteLoginInformation>, ApiError> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path)?;
        Ok(job.last_nodes().iter().filter_map(|id| self.login(&snapshot, id)).collect())
    }

    fn login(&self, state: &State, node: &NodeId) -> Option<RemoteLoginInformation> {
        state.nodes.get(node)?;
        let SshEndpoint { address: ip_address, port } = self.fleet.ssh_endpoints.get(node)?;
        Some(RemoteLoginInformation { node_id: node.clone(), ip_address, port })
    }
}
