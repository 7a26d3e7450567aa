//! Business rules of the API, in folders by resource: each request is a method of [`App`] on parsed values. Generates
//! ids and reads the clock; knows no HTTP types.

pub mod access;
pub mod clusters;
pub mod history;
pub mod hosts;
pub mod jobs;
pub mod monitoring;
pub mod overview;
pub mod resources;
pub mod storage;
pub mod webhook;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corro_model::batchai::{Provisioning, ProvisioningState};
use corro_model::webhook::AddressRules;
use corro_model::{ApiError, Timestamp};
use corro_shares::Shares;
use corro_store::{Ciphertext, State, Store, Timeline};

use self::access::caller::{Caller, ClientProgram};
use self::access::installation::Installation;
use self::clusters::provisioning_issues::ProvisioningIssues;
use self::clusters::quotas::Quotas;
use self::clusters::resource_history::ResourceHistory;
use self::clusters::ssh_endpoints::SshEndpoints;
use self::history::events::EventLog;
use self::hosts::Hosts;
use self::jobs::expected_ends::ExpectedEnds;
use self::jobs::log_followers::LogFollowers;
use self::jobs::process_stats::ProcessStats;
use self::jobs::timelines::Timelines;
use self::jobs::training_curves::CurveReaders;
use self::jobs::tunnels::Tunnels;
use self::monitoring::http_counters::HttpCounters;
use self::resources::warnings::Warnings;
use self::storage::exports::Exports;
use crate::digest;
use crate::provider::Provider;
use crate::scheduler_view::SchedulingConfig;
use crate::traces::Traces;

/// Dependencies of the rules. Cheap to clone; clones share everything but `request`.
#[derive(Clone)]
pub struct App {
    pub store: Store,
    pub installation: Arc<Installation>,
    pub storage: Storage,
    pub config: Arc<AppConfig>,
    /// Start of this server.
    pub started: Timestamp,
    pub fleet: Fleet,
    pub telemetry: Telemetry,
    pub request: RequestContext,
}

/// Directories of this machine that hold users' files.
#[derive(Clone)]
pub struct Storage {
    /// Shares and containers of storage accounts.
    pub shares: Arc<Shares>,
    /// Directories of file servers and their NFS exports.
    pub exports: Arc<Exports>,
    /// One directory per attempt, which all nodes of a job share.
    pub job_shared: Arc<Shares>,
}

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct AppConfig {
    pub quotas: Quotas,
    pub scheduling: SchedulingConfig,
    /// Lifetime of a mount token for a volume.
    pub mount_token_lifetime: Duration,
    /// Addresses of webhooks. `None`: jobs may name no webhook.
    pub webhooks: Option<AddressRules>,
}

/// Live facts about nodes and hosts, as reported by agents and the provider. In memory only: agents report again after
/// each connect.
#[derive(Clone, Default)]
pub struct Fleet {
    /// Address and port of each node's SSH server.
    pub ssh_endpoints: SshEndpoints,
    /// Estimated ends of running tasks.
    pub expected_ends: ExpectedEnds,
    /// Resource usage of job processes, measured on request.
    pub process_stats: ProcessStats,
    /// CPU and memory of tasks over time.
    pub resource_history: ResourceHistory,
    /// Horovod timelines recorded by ranks.
    pub timelines: Timelines,
    /// Open connections to ports of jobs.
    pub tunnels: Tunnels,
    /// Heartbeats of joined hosts and the address they join at.
    pub hosts: Hosts,
    /// Reasons why requested nodes are not running yet.
    pub provisioning_issues: ProvisioningIssues,
    /// Creates nodes; set when the server starts.
    pub provider: Arc<OnceLock<Arc<dyn Provider>>>,
}

/// Events, metrics and traces.
#[derive(Clone, Default)]
pub struct Telemetry {
    /// Log of resource changes.
    pub events: EventLog,
    /// Training curves read from the logs of jobs.
    pub training_curves: CurveReaders,
    /// OpenTelemetry spans.
    pub traces: Traces,
    /// Counters of HTTP requests and reconcile passes.
    pub http_counters: Arc<HttpCounters>,
    /// Clients that follow the logs of running jobs.
    pub log_followers: LogFollowers,
}

/// Request that the rules are applied for.
#[derive(Clone)]
pub struct RequestContext {
    pub caller: Arc<Caller>,
    pub client: ClientProgram,
    /// Warnings to send with the response.
    pub warnings: Warnings,
}

impl RequestContext {
    /// Context of the server's own work.
    pub fn server() -> Self {
        Self { caller: Arc::new(Caller::server()), client: ClientProgram::default(), warnings: Warnings::default() }
    }
}

impl App {
    /// Wall clock, for timestamps.
    pub fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Clock for the age of timestamps; corrects for changes of the wall clock since they were taken.
    pub fn timeline(&self) -> Timeline {
        self.store.clock().timeline()
    }

    /// Keyed digest of a request, to compare a repeated PUT with the first. Keyed because requests contain secrets,
    /// which could be guessed from a plain digest.
    pub fn fingerprint<T: serde::Serialize>(&self, request: &T) -> String {
        let text = serde_json::to_vec(request).expect("requests are plain data");
        digest::hex(&self.keyed_digest("fingerprint", &text)[..16])
    }

    /// HMAC-SHA256 under the installation's key, separated by purpose.
    pub fn keyed_digest(&self, purpose: &str, text: &[u8]) -> [u8; 32] {
        digest::keyed_digest(&self.installation.token_key, purpose, text)
    }

    pub fn snapshot(&self) -> Arc<State> {
        self.store.snapshot()
    }

    /// Decrypts a sealed value. A failure is logged for the operator and returned as an internal error.
    pub fn unseal(&self, purpose: &str, sealed: &Ciphertext) -> Result<corro_model::Secret, ApiError> {
        self.installation.vault.open_sealed(purpose, sealed).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, purpose, "cannot decrypt a stored secret");
            ApiError::new(500, "InternalError", "The server cannot decrypt a stored secret. See the server's log.")
        })
    }
}

pub fn guid() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub fn provisioning_succeeded(now: Timestamp) -> Provisioning {
    Provisioning::new(ProvisioningState::Succeeded, now)
}
