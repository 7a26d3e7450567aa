//! The rules: what each request means, one file per resource. Entered by `http` with parsed values, by `reconcile` for
//! shared look-ups. Draws ids and time; never sees an HTTP type.

pub mod accounts;
pub mod audit;
mod cluster_history;
pub mod clusters;
pub mod conflict;
pub mod events;
pub mod expected_ends;
pub mod experiments;
pub mod exposition;
pub mod figures;
pub mod file_lines;
pub mod file_servers;
pub mod followers;
pub mod groups;
mod history;
pub mod host_tokens;
pub mod hosts;
pub mod instance;
pub mod jobs;
pub mod keyring;
pub mod metrics;
pub mod missing;
pub mod nodes;
pub mod numbers;
pub mod operations;
pub mod operator_metrics;
pub mod output_files;
pub mod overview;
pub mod passes;
pub mod principals;
pub mod remote_login;
mod search;
pub mod secrets;
mod share_links;
pub mod timelines;
pub mod tokens;
pub mod usage;
pub mod usages;
pub mod volumes;
mod waiting;
pub mod warnings;
mod why;
pub mod workspaces;

use std::sync::Arc;

use corro_model::batchai::{Provisioning, ProvisioningState};
use corro_model::{ApiError, Timestamp};
use corro_shares::Shares;
use corro_store::{Sealed, State, Store, Timeline, Vault};

/// What every rule works with; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub store: Store,
    pub vault: Arc<Vault>,
    pub shares: Arc<Shares>,
    /// This installation's subscription and tenant.
    pub subscription: Arc<str>,
    pub tenant: Arc<str>,
    pub token_key: Arc<[u8]>,
    /// On whose behalf the rules are applied.
    pub caller: Arc<principals::Caller>,
    /// Where nodes can be logged in to, as their agents said.
    pub doors: remote_login::Doors,
    /// When their tasks may end, as their agents said.
    pub expected_ends: expected_ends::ExpectedEnds,
    /// What their agents say of processes, when asked.
    pub figures: figures::Figures,
    /// What was recorded of their ranks.
    pub timelines: timelines::Timelines,
    /// What changes, for whoever listens.
    pub events: events::Feed,
    /// What was read of the figures in their logs.
    pub metrics: metrics::Trackers,
    /// What is told to whoever traces.
    pub traces: crate::traces::Traces,
    /// What the doors count.
    pub numbers: Arc<numbers::Numbers>,
    /// Why nodes are not there yet.
    pub missing: missing::Missing,
    pub quotas: usages::Quotas,
    /// How nodes are given to clusters and taken back.
    pub rules: crate::reconcile::scaling::Rules,
    /// How long a pass to a volume lasts.
    pub pass_life: std::time::Duration,
    pub followers: followers::Followers,
    /// What the caller uses.
    pub client: followers::Client,
    /// Where file servers lie and are exported.
    pub exports: Arc<crate::nfs::Exports>,
    /// What machines that join need, and when they were heard.
    pub hosts: hosts::Hosts,
    /// What the nodes of a job share.
    pub job_shared: Arc<Shares>,
    /// What whoever asks should know beside the answer; of one request.
    pub warnings: warnings::Warnings,
    /// Who makes nodes, for what is said about them; set when the server starts.
    pub provider: Arc<std::sync::OnceLock<Arc<dyn crate::provider::Provider>>>,
}

impl App {
    /// The wall clock, for stamps.
    pub fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Tells how old stamps are, also when the wall clock was set since they were made.
    pub fn timeline(&self) -> Timeline {
        self.store.clock().timeline()
    }

    /// A digest of a request, to tell a repeated PUT from a different one. Keyed, because requests hold secrets and a
    /// plain digest of a short one could be guessed.
    pub fn fingerprint<T: serde::Serialize>(&self, request: &T) -> String {
        let text = serde_json::to_vec(request).expect("requests are plain data");
        instance::hex(&self.keyed_digest("fingerprint", &text)[..16])
    }

    /// HMAC-SHA256 under this installation's key; different for every purpose.
    pub fn keyed_digest(&self, purpose: &str, text: &[u8]) -> [u8; 32] {
        instance::keyed_digest(&self.token_key, purpose, text)
    }

    pub fn snapshot(&self) -> Arc<State> {
        self.store.snapshot()
    }

    /// Opens a sealed value; a failure is the operator's problem, not the caller's.
    pub fn unseal(&self, purpose: &str, sealed: &Sealed) -> Result<corro_model::Secret, ApiError> {
        self.vault.open_sealed(purpose, sealed).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, purpose, "a sealed value cannot be opened");
            ApiError::new(500, "InternalError", "The server cannot open a stored secret. See the server's log.")
        })
    }
}

pub fn guid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Refuses to touch what is on its way out.
pub fn refuse_deleting(provisioning: &Provisioning, what: &str, name: &str) -> Result<(), ApiError> {
    if provisioning.is_deleting() {
        let message = format!("The {what} {name} is being deleted: wait until it is gone, then try again");
        return Err(ApiError::conflict("ResourceBeingDeleted", message));
    }
    Ok(())
}

pub fn succeeded(now: Timestamp) -> Provisioning {
    Provisioning::new(ProvisioningState::Succeeded, now)
}
