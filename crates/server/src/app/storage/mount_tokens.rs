//! Mount tokens: a node on another machine mounts a volume of its cluster or job with one. A token is a SAS for one
//! share, read-only or read-write as the volume requires. It expires after a while, and at once when its node is lost
//! or its attempt ends. Tokens are not stored.

use std::time::Duration;

use corro_model::node::{MountToken, MountTokenRequest};
use corro_model::state::NodeState;
use corro_model::storage::sas::{self, Resource};
use corro_model::{ApiError, NodeId, Secret};

use crate::app::App;
use crate::app::access::tokens::NODE_CREDENTIAL_PREFIX;
use crate::app::storage::volumes::{RequestedVolume, VolumeTree, requested_volumes};

/// Default lifetime of a token. Nodes renew it long before.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
const READ_PERMISSIONS: &str = "rl";
const WRITE_PERMISSIONS: &str = "rcwdl";

impl App {
    /// Issues a token for a volume of the node's cluster or job. Blocks on the disk.
    pub fn issue_mount_token(&self, node: &NodeId, request: &MountTokenRequest) -> Result<MountToken, ApiError> {
        let state = self.snapshot();
        let record = state.nodes.get(node).ok_or_else(volume_not_found)?;
        let (tree, is_read_only) = match (&request.attempt, request.relative.as_deref()) {
            (None, None) => return Err(volume_not_found()),
            (None, Some(relative)) => {
                let cluster = state.clusters.get(&record.cluster).ok_or_else(volume_not_found)?;
                let volumes = cluster.spec.node_setup.as_ref().and_then(|setup| setup.mount_volumes.as_ref());
                let bundle = self.open_secrets(cluster.secrets.as_ref())?;
                find_volume(requested_volumes(self, &state, volumes, &bundle), relative)?
            }
            (Some(attempt), relative) => {
                let NodeState::Running { job, attempt: current } = record.state() else {
                    return Err(volume_not_found());
                };
                let job = state.jobs.get(job).filter(|_| current == attempt).ok_or_else(volume_not_found)?;
                match relative {
                    None => (
                        VolumeTree::shared_by_attempt(self, attempt)
                            .map_err(|error| unavailable(&error.to_string()))?,
                        false,
                    ),
                    Some(relative) => {
                        let bundle = self.open_secrets(job.secrets.as_ref())?;
                        find_volume(
                            requested_volumes(self, &state, job.spec.mount_volumes.as_ref(), &bundle),
                            relative,
                        )?
                    }
                }
            }
        };
        let attempt = request.attempt.as_ref().map(ToString::to_string).unwrap_or_default();
        let credential = format!("{NODE_CREDENTIAL_PREFIX}{node}:{}:{attempt}", record.epoch);
        self.sign_mount_token(tree, is_read_only, &credential)
    }

    fn sign_mount_token(&self, tree: VolumeTree, is_read_only: bool, credential: &str) -> Result<MountToken, ApiError> {
        let key = match tree.account.as_str() {
            corro_model::names::FILE_SERVERS | corro_model::names::JOB_SHARED => {
                Some(self.internal_account_key(&tree.account))
            }
            account => self.raw_account_keys(account).and_then(|keys| keys.into_iter().next()),
        };
        let key = key.ok_or_else(|| unavailable("its storage account does not exist any more"))?;
        let resource = if tree.is_container { Resource::Container } else { Resource::Share };
        let permissions = if is_read_only { READ_PERMISSIONS } else { WRITE_PERMISSIONS };
        let lifetime_s = self.config.mount_token_lifetime.as_secs();
        let expires = self.now().seconds() + lifetime_s as i64;
        let target = (tree.account.as_str(), tree.name.as_str(), "");
        let signature = sas::link_query(resource, permissions, &key, target, expires, credential)
            .map_err(|error| unavailable(&error.to_string()))?;
        Ok(MountToken {
            account: tree.account,
            share: tree.name,
            directory: tree.inside,
            signature: Secret::new(signature),
            lifetime_s,
        })
    }

    /// Signing key of the internal accounts (file servers, job-shared directories). Only this server has it.
    pub fn internal_account_key(&self, account: &str) -> Vec<u8> {
        self.keyed_digest("trees", account.as_bytes()).to_vec()
    }

    /// Whether the node is alive and still runs the attempt. `credential` is the credential id without its prefix.
    pub fn is_mount_token_valid(&self, credential: &str) -> bool {
        let mut parts = credential.splitn(3, ':');
        let (Some(node), Some(epoch), Some(attempt)) = (parts.next(), parts.next(), parts.next()) else { return false };
        let Some(node) = NodeId::parse(node) else { return false };
        self.snapshot().nodes.get(&node).is_some_and(|record| {
            record.epoch.to_string() == epoch
                && match record.state() {
                    NodeState::Unusable { lost: true, .. } => false,
                    NodeState::Running { attempt: current, .. } => attempt.is_empty() || current.to_string() == attempt,
                    _ => attempt.is_empty(),
                }
        })
    }
}

/// Share of the volume mounted at `relative`, and whether it is read-only.
fn find_volume(volumes: Vec<RequestedVolume>, relative: &str) -> Result<(VolumeTree, bool), ApiError> {
    let found = volumes.into_iter().find(|wanted| wanted.volume.relative == relative).ok_or_else(volume_not_found)?;
    match (found.tree, found.volume.source) {
        (Some(tree), _) => Ok((tree, found.volume.read_only)),
        (None, corro_model::node::VolumeSource::Unavailable { why }) => Err(unavailable(&why)),
        (None, _) => Err(volume_not_found()),
    }
}

fn volume_not_found() -> ApiError {
    ApiError::new(404, "VolumeNotFound", "This node has no such volume to mount now")
}

fn unavailable(why: &str) -> ApiError {
    ApiError::new(409, "VolumeUnavailable", why)
}
