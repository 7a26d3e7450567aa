//! The server: `http` translates, `app` applies rules, `reconcile` makes wishes true, `gateway` talks to agents.
//! Embedded by `corro up` and `corro server` through [`Server::start`]; who makes nodes is handed in as a [`Provider`].
//!
//! Reading order: [`app`], [`http`], [`gateway`], [`reconcile`].

pub mod app;
pub mod gateway;
pub mod http;
mod provider;
pub mod reconcile;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use corro_model::batchai::BatchAiError;
use corro_model::{ApiError, NodeId, Secret};
use corro_shares::Shares;
use corro_store::{NodeRecord, Store, Vault};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use app::instance::AdminCredential;
pub use provider::Provider;

use app::{App, instance};
use gateway::Gateway;
use http::files::{AccountKeys, FileService};
use reconcile::{ReconcileConfig, Reconciler};

pub struct ServerConfig {
    /// Everything the server keeps lies here. The caller holds its lock.
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// A node that is silent for longer is lost.
    pub lease: Duration,
    /// Container jobs may run on the host.
    pub containers_on_host: bool,
    /// The credential a client on this machine has already, if any.
    pub known_admin: Option<AdminCredential>,
    /// With this token any machine may become a node that a cluster waits for.
    pub open_join_token: Option<Secret>,
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub subscription: String,
    pub tenant: String,
    pub admin: AdminCredential,
    app: App,
    provider: Arc<dyn Provider>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// `provider` is given the address that agents can reach the server at.
    pub async fn start(
        config: ServerConfig,
        provider: impl FnOnce(SocketAddr) -> Arc<dyn Provider>,
    ) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
        let address = listener.local_addr()?;
        let data = &config.data;
        let vault = Vault::open(&data.join("master.key")).context("cannot open the data directory's master key")?;
        let store = open_store(data).await?;
        let shares = Shares::open(data.join("shares")).context("cannot open the directory of shares")?;
        for error in shares.unswept() {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "what a deleted share left behind cannot be removed"
            );
        }
        let shared_temp = data.join("job-shared");
        std::fs::create_dir_all(&shared_temp).context("cannot create the directory that jobs share")?;
        let identity = instance::ensure_instance(&store, &vault).await?;
        let now = SystemTime::now().into();
        let admin = instance::ensure_administrator(&store, config.known_admin, now).await?;
        let app = App {
            store,
            vault: Arc::new(vault),
            shares: Arc::new(shares),
            subscription: identity.subscription.clone().into(),
            tenant: identity.tenant.clone().into(),
            token_key: identity.token_key.into(),
        };
        let gateway = Gateway::new(app.clone(), config.open_join_token.as_ref());
        let files = FileService::new(app.shares.clone(), Arc::new(KeysOf(app.clone())), unix_now);
        let provider = provider(address);
        let (stop, stopping) = watch::channel(false);
        let api = http::Api::new(app.clone(), gateway.clone(), files);
        let reconcile =
            ReconcileConfig { lease: config.lease, containers_on_host: config.containers_on_host, shared_temp };
        let reconciler = Reconciler::new(app.clone(), gateway, provider.clone(), reconcile);
        let tasks =
            vec![tokio::spawn(http::serve(listener, api, stopping.clone())), tokio::spawn(reconciler.run(stopping))];
        let (subscription, tenant) = (identity.subscription, identity.tenant);
        Ok(Self { address, subscription, tenant, admin, app, provider, stop, tasks })
    }

    /// Stops serving and leaves agents and jobs as they are: a later start finds them again.
    pub async fn stop(mut self) {
        self.halt().await;
    }

    /// Stops serving and ends every node. Running jobs go back to the queue and start again with the next server.
    /// Returns how many there were.
    pub async fn stop_with_nodes(mut self) -> anyhow::Result<usize> {
        self.halt().await;
        let nodes: Vec<_> = self.app.snapshot().nodes.keys().cloned().collect();
        let provider = self.provider.clone();
        tokio::task::spawn_blocking(move || {
            let deadline = std::time::Instant::now() + Duration::from_secs(8);
            let mut left = nodes;
            left.iter().for_each(|node| provider.ask_to_stop(node));
            while !left.is_empty() {
                let polite = std::time::Instant::now() < deadline;
                left.retain(|node| !provider.ensure_gone(node, polite));
                std::thread::park_timeout(Duration::from_millis(20));
            }
        })
        .await?;
        let now = self.app.now();
        let requeued = self.app.store.commit(move |txn| {
            let running: Vec<_> = txn
                .state()
                .jobs
                .iter()
                .filter(|(_, job)| !job.state().nodes().is_empty())
                .map(|(key, job)| (key.clone(), job.state().name()))
                .collect();
            for (key, _) in &running {
                let reason = BatchAiError::new("ServerStopped", "The server was stopped while the job ran");
                if txn.requeue(key, reason, now).is_err() {
                    // It was being terminated: its end is reached.
                    let failed = corro_model::state::JobEvent::Failed { exit_code: None, errors: vec![], at: now };
                    let _ = txn.end_attempt(key, failed, now);
                }
            }
            let nodes: Vec<_> = txn.state().nodes.keys().cloned().collect();
            for node in nodes {
                txn.remove::<NodeRecord>(&node);
            }
            Ok::<_, ApiError>(running.iter().filter(|(_, state)| *state == "running").count())
        });
        Ok(requeued.await?)
    }

    /// Every node the server knows of.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.app.snapshot().nodes.keys().cloned().collect()
    }

    async fn halt(&mut self) {
        self.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

/// A token nobody can guess, for machines that join by themselves.
pub fn new_join_token() -> Secret {
    Secret::new(instance::hex(&corro_store::seal::random::<32>()))
}

struct KeysOf(App);

impl AccountKeys for KeysOf {
    fn keys(&self, account: &str) -> Option<Vec<Vec<u8>>> {
        self.0.raw_account_keys(account)
    }
}

async fn open_store(data: &Path) -> anyhow::Result<Store> {
    let path = data.join("corro.db");
    let store = tokio::task::spawn_blocking(move || Store::open(&path)).await?;
    store.context("cannot open the server's database")
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs() as i64)
}
