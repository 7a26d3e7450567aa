//! The server: `http` translates requests, `app` applies the rules, `reconcile` makes the cluster match the state,
//! `early_stopping` ends trials of sweeps, `webhooks` reports ends of jobs, `gateway` talks to agents, `dashboard` serves the web pages. Embedded by `corro up` and `corro server` through
//! [`Server::start`], with a [`Provider`] that creates nodes. [`FileServer::start`] serves only files, for `corro
//! files`.
//!
//! Reading order: [`app`], [`http`], [`gateway`], [`reconcile`]. Modules import downwards only: `app` below `gateway`,
//! `nfs`, `early_stopping`, `webhooks` and `reconcile`, these below `http`, all below this file.

pub mod admin_login_file;
pub mod app;
mod connections;
mod dashboard;
mod digest;
mod docs;
mod early_stopping;
pub mod gateway;
pub mod http;
pub mod nfs;
mod provider;
pub mod reconcile;
pub mod scheduler_view;
mod shutdown;
mod storage_service;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod traces;
pub mod webhooks;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use corro_file_service::FileService;
use corro_model::names::{FILE_SERVERS, JOB_SHARED};
use corro_model::node::SharedDiskProbe;
use corro_model::webhook::AddressRules;
use corro_model::{ApiError, NodeId, Secret, Timestamp};
use corro_shares::Shares;
use corro_store::Store;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use app::access::installation::AdminCredential;
pub use app::clusters::quotas::Quotas;
pub use app::storage::mount_tokens::DEFAULT_LIFETIME as MOUNT_TOKEN_LIFETIME;
pub use corro_store::dir_lock;
/// Backups of a server's data, for `corro admin`.
pub use corro_store::{backup, data_dir};
pub use provider::{NewNode, Provider, ServerAddress};
pub use scheduler_view::SchedulingConfig;
pub use storage_service::standalone::{FileServer, FileServerConfig, new_account_key};

use app::access::installation;
use app::history::audit::AuditLog;
use app::storage::exports::Exports;
use app::{App, AppConfig, Fleet, RequestContext, Storage, Telemetry};
use gateway::Gateway;
use http::HttpService;
use reconcile::{ReconcileConfig, Reconciler};
use storage_service::account_keys::AccountKeyCache;
use storage_service::audit_log::FileAuditLog;
use traces::Traces;

pub struct ServerConfig {
    /// Data directory. The embedder holds its lock.
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// Without TLS the server listens on loopback addresses only.
    pub tls: Option<tls::Tls>,
    /// Rate limits per caller.
    pub rates: http::rate_limit::Rates,
    /// A node that is silent for longer than this is declared lost.
    pub lease: Duration,
    /// Lifetime of the token with which a node on another machine mounts a volume.
    pub mount_token_lifetime: Duration,
    /// Run container jobs directly on the host when there is no container engine.
    pub containers_on_host: bool,
    /// The operator's choice of strict isolation. `None`: strict as soon as there is more than one principal.
    pub strict_isolation: Option<bool>,
    /// Redact the values of secrets in the output of jobs and setup tasks.
    pub masks_secrets: bool,
    /// Administrator credential in this machine's profile, if any.
    pub known_admin: Option<AdminCredential>,
    /// Quotas per region and resource group.
    pub quotas: Quotas,
    /// Scheduling policy and limits.
    pub scheduling: SchedulingConfig,
    /// Directory of Python wheels that every node offers to `pip`. It need not exist.
    pub wheels: PathBuf,
    /// Address of the NFS port, which listens while there is a file server. `None` turns NFS off.
    pub nfs: Option<SocketAddr>,
    /// Token with which any machine may become a requested node.
    pub open_join_token: Option<Secret>,
    /// Trace settings and exporter. `None` turns traces off.
    pub traces: Option<(traces::settings::Settings, Arc<dyn traces::SpanExporter>)>,
    /// Addresses of webhooks, and the client that posts to them. `None` turns webhooks off.
    pub webhooks: Option<(AddressRules, Arc<dyn webhooks::WebhookTransport>)>,
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub subscription: String,
    pub tenant: String,
    pub admin: AdminCredential,
    app: App,
    provider: Arc<dyn Provider>,
    shared_temp: PathBuf,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Ends after the other tasks, which still record spans.
    trace_exporter: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server. `provider` is called once the address and identity of the server are known.
    pub async fn start(
        config: ServerConfig,
        provider: impl FnOnce(ServerAddress) -> Arc<dyn Provider>,
    ) -> anyhow::Result<Self> {
        // Checked here whatever the embedder does: without TLS the server must not be reachable from other machines.
        let reachable = config.listen.ip().is_loopback() || config.tls.is_some();
        ensure!(reachable, "{} is not a loopback address, and TLS is off", config.listen);
        ensure!(config.lease >= MIN_LEASE, "the lease must be at least {} s", MIN_LEASE.as_secs());
        let listener =
            TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
        let address = listener.local_addr()?;
        let data = &config.data;
        let store = open_store(data).await?;
        let installation = Arc::new(installation::ensure_installation(&store, data).await?);
        let shares = open_shares(data, store.clock().timeline().origin()).await?;
        let exports_key = digest::keyed_digest(&installation.token_key, "nfs exports", b"");
        let exports = open_exports(data, exports_key).await?;
        let job_shared = Arc::new(open_job_shared(data).await?);
        let shared_temp = data.join(JOB_SHARED_DIR).join(JOB_SHARED);
        std::fs::create_dir_all(&shared_temp).context("cannot create the shared directory of jobs")?;
        let shared_temp = shared_temp.canonicalize().context("cannot find the shared directory of jobs")?;
        shutdown::remove_ended_shared_dirs(&shared_temp, || store.snapshot());
        let now = store.clock().now();
        let admin = installation::ensure_administrator(&store, config.known_admin, now).await?;
        let (traces, trace_exporter) = match config.traces {
            Some((settings, collector)) => {
                let (traces, leaving) = Traces::start(settings, collector, now);
                (traces, Some(leaving))
            }
            None => Default::default(),
        };
        let (webhook_rules, webhook_transport) = config.webhooks.unzip();
        let app = App {
            store,
            installation,
            storage: Storage { shares: Arc::new(shares), exports: Arc::new(exports), job_shared },
            config: Arc::new(AppConfig {
                quotas: config.quotas,
                scheduling: config.scheduling,
                mount_token_lifetime: config.mount_token_lifetime,
                webhooks: webhook_rules,
            }),
            started: now,
            fleet: Fleet::default(),
            telemetry: Telemetry { traces, ..Telemetry::default() },
            request: RequestContext::server(),
        };
        let shared_disk_probe = write_shared_disk_probe(&app, data)?;
        let (stop, stopping) = watch::channel(false);
        let gateway = Gateway::new(app.clone(), config.open_join_token.as_ref(), stopping.clone());
        let gateway = gateway.with_wheels(&config.wheels);
        let limits = Arc::new(http::rate_limit::RateLimits::new(config.rates));
        let files = FileService::new(
            app.storage.shares.clone(),
            Arc::new(AccountKeyCache::new(app.clone())),
            limits.clone(),
            unix_now,
        );
        let audit = AuditLog::default();
        let files = files
            .with_tree(FILE_SERVERS, app.storage.exports.shares().clone())
            .with_tree(JOB_SHARED, app.storage.job_shared.clone());
        let files = files.with_audit(Arc::new(FileAuditLog { app: app.clone(), audit: audit.clone() }));
        let provider = provider(ServerAddress { address, instance: app.installation.tenant.to_string() });
        let _ = app.fleet.provider.set(provider.clone());
        let api = http::Api::new(app.clone(), gateway.clone(), files.clone(), limits, audit);
        let reconcile = ReconcileConfig {
            lease: config.lease,
            containers_on_host: config.containers_on_host,
            strict_isolation: config.strict_isolation,
            masks_secrets: config.masks_secrets,
            shared_temp: shared_temp.clone(),
            shared_disk_probe: Some(shared_disk_probe),
            scheduling: config.scheduling,
        };
        let reconciler = Reconciler::new(app.clone(), gateway, provider.clone(), reconcile);
        let connections = api.connections();
        let judge = Arc::new(AccountKeyCache::new(app.clone()));
        let nfs = match config.nfs {
            Some(listen) => Some(nfs::NfsPort::reserve(&app, listen, &data.join("nfs-port"))?),
            None => None,
        };
        let tasks = vec![
            tokio::spawn(app.telemetry.events.clone().watch(app.clone(), stopping.clone())),
            tokio::spawn(traces::jobs::record_committed_transitions(
                app.telemetry.traces.clone(),
                app.store.clone(),
                stopping.clone(),
            )),
            tokio::spawn(nfs::remove_deleted_file_servers(app.clone(), stopping.clone())),
            tokio::spawn(shutdown::watch_shared_dirs(app.store.clone(), shared_temp.clone(), stopping.clone())),
            tokio::spawn(app.fleet.resource_history.clone().run(app.clone(), stopping.clone())),
            tokio::spawn(early_stopping::run(app.clone(), stopping.clone())),
            tokio::spawn(webhooks::run(app.clone(), webhook_transport, stopping.clone())),
            tokio::spawn(app.fleet.tunnels.clone().run(app.clone(), stopping.clone())),
            tokio::spawn(serve_nfs(nfs, stopping.clone())),
            tokio::spawn(connections.run(app.store.clone(), judge, unix_now, stopping.clone())),
            tokio::spawn(http::serve(listener, config.tls, api, stopping.clone())),
            tokio::spawn(reconciler.run(stopping.clone())),
            tokio::spawn(flush_file_audit(files, stopping)),
        ];
        let (subscription, tenant) = (app.installation.subscription.clone(), app.installation.tenant.clone());
        Ok(Self { address, subscription, tenant, admin, app, provider, shared_temp, stop, tasks, trace_exporter })
    }

    /// Stops serving. Agents and jobs keep running and reconnect to the next server.
    pub async fn stop(mut self) {
        self.halt().await;
        self.flush_traces().await;
        self.close_store().await;
    }

    /// Stops serving and ends every node. Running jobs are queued again and restart with the next server.
    pub async fn stop_with_nodes(mut self) -> anyhow::Result<StopReport> {
        self.halt().await;
        let nodes = self.nodes();
        let provider = self.provider.clone();
        let left = tokio::task::spawn_blocking(move || shutdown::end_nodes(&*provider, nodes)).await?;
        let (now, before) = (self.app.now(), self.app.snapshot());
        let requeued =
            self.app.store.commit_relief(move |txn| Ok::<_, ApiError>(shutdown::requeue_running(txn, now))).await;
        let ran = before.active_jobs().map(|(key, _)| key.clone());
        self.app.telemetry.traces.record_job_transitions(ran, &before, &self.app.snapshot());
        self.flush_traces().await;
        shutdown::remove_ended_shared_dirs(&self.shared_temp, || self.app.snapshot());
        self.close_store().await;
        Ok(StopReport { requeued: requeued?, left })
    }

    /// Allows machines to join as hosts at this URL.
    pub fn enable_host_join(&self, url: &str, ca_fingerprint: Option<&str>) {
        let front = app::hosts::JoinEndpoint { url: url.to_owned(), ca_fingerprint: ca_fingerprint.map(str::to_owned) };
        self.app.fleet.hosts.enable_join(front);
    }

    /// The part that is not ready yet, as `/readyz` reports it. `None`: the server is ready.
    pub fn not_ready_reason(&self) -> Option<&'static str> {
        self.app.not_ready_reason()
    }

    /// Whether there are principals beside the administrator.
    pub fn has_several_principals(&self) -> bool {
        self.app.snapshot().has_several_principals()
    }

    /// All nodes in the database.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.app.snapshot().nodes.keys().cloned().collect()
    }

    /// After this, the database file alone has the whole state.
    async fn close_store(&self) {
        match self.app.store.close().await {
            Ok(true) => {}
            Ok(false) => tracing::warn!("another process reads the database: its latest state stays in corro.db-wal"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the database could not be closed: its latest state stays in corro.db-wal");
            }
        }
    }

    async fn flush_traces(&mut self) {
        self.app.telemetry.traces.flush().await;
        if let Some(leaving) = self.trace_exporter.take() {
            leaving.abort();
        }
    }

    async fn halt(&mut self) {
        self.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
        // The store commits in order: once this empty commit returns, all earlier ones are durable.
        let _ = self.app.store.commit(|_| Ok::<_, ApiError>(())).await;
    }
}

/// Minimum lease. Agents send a heartbeat every second; some may be late.
pub const MIN_LEASE: Duration = corro_model::node::HEARTBEAT.saturating_mul(3);

/// Result of [`Server::stop_with_nodes`].
pub struct StopReport {
    /// Number of running jobs that were queued again.
    pub requeued: usize,
    /// Nodes that did not end in time.
    pub left: Vec<NodeId>,
}

/// Random token for machines that join by themselves.
pub fn new_join_token() -> Secret {
    Secret::new(digest::hex(&corro_store::encryption::random::<32>()))
}

/// Writes the aggregated file audit lines every minute, and the rest when the server stops.
async fn flush_file_audit(files: FileService, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(10));
    loop {
        tokio::select! {
            _ = ticks.tick() => files.flush_audit(false),
            // An error means that the sender is gone, and the server with it.
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    files.flush_audit(true);
}

async fn serve_nfs(port: Option<nfs::NfsPort>, stopping: watch::Receiver<bool>) {
    if let Some(port) = port {
        port.serve(stopping).await;
    }
}

async fn open_store(data: &Path) -> anyhow::Result<Store> {
    let data = data.to_owned();
    let open = move || {
        Store::open_checked(&data.join(data_dir::DATABASE), |state| installation::check_master_key(state, &data))
    };
    tokio::task::spawn_blocking(open).await?.context("cannot open the server's database")
}

async fn open_shares(data: &Path, now: Timestamp) -> anyhow::Result<Shares> {
    let (dir, now) = (data.join("shares"), UNIX_EPOCH + Duration::from_millis(now.millis().max(0) as u64));
    let shares = tokio::task::spawn_blocking(move || Shares::open_at(dir, now)).await?;
    let shares = shares.context("cannot open the directory of shares")?;
    for error in shares.leftovers() {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, "cannot remove the remains of a deleted share");
    }
    Ok(shares)
}

/// Directory with one shared directory per attempt.
const JOB_SHARED_DIR: &str = "job-shared";

async fn open_job_shared(data: &Path) -> anyhow::Result<Shares> {
    let dir = data.join(JOB_SHARED_DIR);
    let shares = tokio::task::spawn_blocking(move || Shares::open(&dir)).await?;
    shares.context("cannot open the shared directory of jobs")
}

/// Writes the file by which a node finds out whether it shares this machine's disk. Its content cannot be guessed.
fn write_shared_disk_probe(app: &App, data: &Path) -> anyhow::Result<SharedDiskProbe> {
    let content = digest::hex(&app.keyed_digest("landmark", b"")[..16]);
    let file = data.canonicalize().context("cannot find the data directory")?.join("landmark");
    // Not rewritten if unchanged: a full disk must not prevent the start.
    if std::fs::read_to_string(&file).ok().as_ref() != Some(&content) {
        std::fs::write(&file, &content).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(SharedDiskProbe { file, content })
}

async fn open_exports(data: &Path, key: [u8; 32]) -> anyhow::Result<Exports> {
    let dir = data.join("file-servers");
    let exports = tokio::task::spawn_blocking(move || Exports::open(&dir, key)).await?;
    exports.context("cannot open the directory of file servers")
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs() as i64)
}
