//! Protocol of hosts: a join token is exchanged for a credential; each report is answered with the nodes that the host should run.
//! The assignment of nodes to hosts is in the nodes' records; nothing is decided here.

use std::time::Duration;

use corro_model::host::{
    DesiredHost, DesiredHostNode, HostCredential, HostJoinRequest, HostReport, check_host_name, check_inventory,
};
use corro_model::state::NodeState;
use corro_model::{ApiError, NodeId, Secret};
use corro_store::encryption::{digest, random};
use corro_store::{HostRecord, HostTokenRecord, NodeRecord, State};

use super::Gateway;
use crate::app::hosts::capacity::nodes_on_host;
use crate::app::hosts::host_key;
use crate::app::hosts::join_tokens::find_join_token;
use crate::digest::hex;

const MAX_HOSTS: usize = 10_000;
/// Interval at which a host's last report is written to its record.
const HEARD_WRITE_INTERVAL: Duration = Duration::from_secs(60);

impl Gateway {
    pub async fn join_host(&self, request: HostJoinRequest) -> Result<HostCredential, ApiError> {
        check_host_name(&request.name)?;
        check_inventory(&request.inventory)?;
        let (secret, now) = (Secret::new(hex(&random::<32>())), self.app.now());
        let (instance, credential_digest) = (self.app.installation.tenant.to_string(), digest(secret.expose()));
        let commit = self.app.store.commit(move |txn| {
            let HostJoinRequest { token, name, inventory } = request;
            let token = find_join_token(txn.state(), &token, now)?;
            let key = host_key(&name);
            if txn.state().hosts.contains_key(&key) {
                let message = format!(
                    "A host named '{name}' has joined already: choose another name for this machine with --name, or remove the other host with 'corro host remove {name}'"
                );
                return Err(ApiError::conflict("HostAlreadyExists", message));
            }
            if txn.state().hosts.len() >= MAX_HOSTS {
                return Err(ApiError::conflict("TooManyHosts", format!("The limit of {MAX_HOSTS} hosts is reached: remove unused ones")));
            }
            txn.update::<HostTokenRecord>(&token, |record| record.hosts += 1);
            let record = HostRecord {
                name: name.clone(),
                credential_digest,
                joined: now,
                token,
                inventory,
                heard: now,
                cordoned: false,
                draining: None,
                removing: false,
            };
            txn.put(key, record);
            Ok(HostCredential { name, secret, instance })
        });
        let credential = commit.await?;
        // The host counts as heard only when its agent reports: the agent may be started later.
        self.changed.notify_one();
        Ok(credential)
    }

    /// Handles a report and returns the nodes that the host should run.
    pub async fn host_report(&self, credential: &HostCredential, report: HostReport) -> Result<DesiredHost, ApiError> {
        check_inventory(&report.inventory)?;
        let (key, now) = (host_key(&credential.name), self.app.now());
        let snapshot = self.app.snapshot();
        let known =
            snapshot.hosts.get(&key).filter(|record| record.credential_digest == digest(credential.secret.expose()));
        let Some(record) = known else {
            return Err(ApiError::unauthorized("The host's credential is not valid: the host was removed"));
        };
        let was_silent = !self.app.fleet.hosts.is_alive(&key);
        self.app.fleet.hosts.record_heartbeat(&key, now, report.gpus);
        if record.inventory != report.inventory || self.app.timeline().age(record.heard) > HEARD_WRITE_INTERVAL {
            let (key, inventory) = (key.clone(), report.inventory.clone());
            let commit = self.app.store.commit(move |txn| {
                txn.update::<HostRecord>(&key, |record| (record.inventory, record.heard) = (inventory, now));
                Ok::<_, ApiError>(())
            });
            // A full disk must not leave the host without its desired state; a later report updates the record.
            if let Err(error) = commit.await
                && error.status != ApiError::INSUFFICIENT_STORAGE
            {
                return Err(error);
            }
        }
        if was_silent {
            self.changed.notify_one();
        }
        Ok(DesiredHost { nodes: self.desired_nodes(&snapshot, &key, &report.living), removed: false })
    }

    fn desired_nodes(&self, state: &State, host: &str, running_nodes: &[NodeId]) -> Vec<DesiredHostNode> {
        let desired = |id: &NodeId, node: &NodeRecord| {
            let missing = *node.state() == NodeState::Allocating && !running_nodes.contains(id);
            DesiredHostNode {
                node: id.clone(),
                token: missing.then(|| self.mint_token(id)),
                busy: matches!(node.state(), NodeState::Running { .. }),
            }
        };
        nodes_on_host(state, host).map(|(id, node)| desired(id, node)).collect()
    }
}
