//! The `kubernetes` provider: nodes are pods that run `corro agent`. Pods survive a restart of the server, which finds its own by
//! their labels. This file connects the parts behind [`Provider`].
//!
//! Reading order: `pod_spec` (objects that are created), `pod_status` and `pod_cache` (what the API's reports mean; all three are pure),
//! `pods_api` over `api_client` (API calls), `kubeconfig_source`, `kubeconfig` and `credential` (which cluster, and as whom).

mod api_client;
pub mod args;
mod credential;
mod kubeconfig;
mod kubeconfig_source;
mod pod_cache;
mod pod_spec;
mod pod_status;
mod pods_api;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::ProviderError;
use crate::server_args::EmbeddedServerArgs;
use api_client::KubeApiError;
use args::{KubernetesArgs, PodSettings};
use pod_cache::{PodCache, PodDeletion};
pub use pod_spec::{SHARED_DISK_PROBE_FILE, ServerIdentity};
use pod_status::PodObject;
use pods_api::{PodEvent, PodsApi};

const MAX_CONCURRENT_CREATIONS: usize = 8;
/// Pauses after failed calls double from the first to the second.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);

/// The provider's settings, validated before the server starts.
pub struct PreparedProvider {
    api: PodsApi,
    settings: PodSettings,
    server_url: Option<String>,
}

pub struct KubernetesNodes {
    shared: Arc<Shared>,
    runtime: Handle,
    watch_task: JoinHandle<()>,
}

struct Shared {
    api: PodsApi,
    settings: PodSettings,
    server: ServerIdentity,
    label_selector: String,
    cache: Mutex<PodCache>,
    creation_permits: Semaphore,
}

impl PreparedProvider {
    /// Validates the options and reads the cluster's configuration. Does not connect.
    pub fn new(args: &KubernetesArgs, server_args: &EmbeddedServerArgs) -> Result<Self, ProviderError> {
        let (settings, server_url) = (args.to_settings()?, args.kubernetes_server_url.clone());
        if server_url.is_none() && !server_args.has_name() {
            return Err(ProviderError::KubernetesServerUnnamed);
        }
        Ok(Self { api: PodsApi::open(args)?, settings, server_url })
    }

    /// Starts to watch the cluster. Must be called within a Tokio runtime.
    pub fn start(self, mut server: ServerIdentity) -> KubernetesNodes {
        server.url = self.server_url.unwrap_or(server.url);
        let label_selector = pod_spec::label_selector(&server.instance);
        let shared = Arc::new(Shared {
            api: self.api,
            settings: self.settings,
            server,
            label_selector,
            cache: Mutex::default(),
            creation_permits: Semaphore::new(MAX_CONCURRENT_CREATIONS),
        });
        let watch_task = tokio::spawn(shared.clone().run_watch_loop());
        KubernetesNodes { shared, runtime: Handle::current(), watch_task }
    }
}

impl Drop for KubernetesNodes {
    fn drop(&mut self) {
        self.watch_task.abort();
    }
}

impl Provider for KubernetesNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        let mut attempt_id = [0u8; 3];
        getrandom::fill(&mut attempt_id).expect("Linux has random numbers");
        let name = pod_spec::pod_name(&node.id, &attempt_id.map(|byte| format!("{byte:02x}")).concat());
        let Some((name, cancelled)) = self.shared.lock_cache().begin_creation(&node.id, name) else { return };
        let pod = pod_spec::pod(&name, node, &self.shared.server, &self.shared.settings);
        self.runtime.spawn(self.shared.clone().create_until_done(node.id.clone(), pod, token, cancelled));
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        self.shared.lock_cache().is_alive(node)
    }

    /// Kubernetes cannot end processes on a machine that does not reach its API server.
    fn can_end_silent_nodes(&self) -> bool {
        false
    }

    fn ask_to_stop(&self, node: &NodeId) {
        let deletions = self.shared.lock_cache().plan_stop(node);
        let shared = self.shared.clone();
        self.runtime.spawn(async move { shared.delete_pods(deletions).await });
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        let planned = self.shared.lock_cache().plan_removal(node, polite, Instant::now());
        let Some(deletions) = planned else { return true };
        if !deletions.is_empty() {
            self.runtime.block_on(self.shared.delete_pods(deletions));
        }
        false
    }

    fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        self.shared.lock_cache().explain(node)
    }

    fn remove_orphans(&self, known: &dyn Fn() -> BTreeSet<NodeId>) {
        let nodes = self.shared.lock_cache().nodes();
        let known = known();
        let orphans = self.shared.lock_cache().plan_orphan_deletions(&nodes, &known, Instant::now());
        if !orphans.is_empty() {
            tracing::warn!(pods = orphans.len(), "pods of nodes that no longer exist are deleted");
            self.runtime.block_on(self.shared.delete_pods(orphans));
        }
    }
}

impl Shared {
    fn lock_cache(&self) -> MutexGuard<'_, PodCache> {
        self.cache.lock().expect("no holder of this lock panics")
    }

    /// Creates a pod and its secret. Errors may be temporary (a quota, an API server that restarts), so it retries until it succeeds or the
    /// creation is cancelled.
    async fn create_until_done(self: Arc<Self>, node: NodeId, pod: Pod, token: Secret, cancelled: Arc<Notify>) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut pause = MIN_RETRY_PAUSE;
        loop {
            let is_cancelled = self.lock_cache().is_creation_cancelled(&node);
            let created = match is_cancelled {
                // An attempt whose response was lost may have created the pod.
                true => self.api.get_pod(&name).await,
                false => self.try_create(&pod, &token).await.map(Some),
            };
            match created {
                Ok(pod) => {
                    tracing::info!(%node, pod = name, is_cancelled, "a pod is created");
                    let pod = pod.as_ref().and_then(pod_status::pod_state);
                    return self.lock_cache().end_creation(&node, pod, Instant::now());
                }
                Err(error) => {
                    tracing::warn!(%node, pod = name, %error, "cannot create a pod; retrying");
                    self.lock_cache().on_creation_error(&node, &error.to_string());
                }
            }
            let _ = tokio::time::timeout(pause, cancelled.notified()).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
    }

    async fn try_create(&self, pod: &Pod, token: &Secret) -> Result<PodObject, KubeApiError> {
        let _permit = self.creation_permits.acquire().await;
        let created = self.api.create_pod(pod).await?;
        self.api.create_secret(&pod_spec::secret(&created.metadata, token, &self.server.shared_disk_probe)).await?;
        Ok(created)
    }

    async fn delete_pods(&self, deletions: Vec<PodDeletion>) {
        for deletion in deletions {
            match self.api.delete_pod(&deletion).await {
                Ok(()) => {
                    tracing::info!(
                        pod = deletion.name,
                        grace = deletion.grace_seconds,
                        "deletion of a pod is requested"
                    )
                }
                Err(error) => {
                    tracing::warn!(pod = deletion.name, %error, "cannot delete a pod; retrying")
                }
            }
        }
    }

    /// Keeps the cache up to date until the provider is dropped.
    async fn run_watch_loop(self: Arc<Self>) {
        let mut pause = MIN_RETRY_PAUSE;
        loop {
            match self.list_and_watch().await {
                Ok(()) => pause = MIN_RETRY_PAUSE,
                Err(error) => {
                    tracing::warn!(%error, "cannot reach the Kubernetes API; retrying");
                    self.lock_cache().on_unreachable(error.to_string());
                    pause = (pause * 2).min(MAX_RETRY_PAUSE);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One list and the watches that continue it, until a new list is needed.
    async fn list_and_watch(&self) -> Result<(), KubeApiError> {
        let began = Instant::now();
        let (pods, mut version) = self.api.list(&self.label_selector).await?;
        self.lock_cache().on_list(pods, began, Instant::now());
        loop {
            let opened = Instant::now();
            let on_event = |event| match event {
                PodEvent::Changed(name, state) => self.lock_cache().on_changed(name, state, Instant::now()),
                PodEvent::Deleted(name) => self.lock_cache().on_deleted(&name),
            };
            match self.api.watch(&self.label_selector, version, on_event).await? {
                Some(next) => version = next,
                None => return Ok(()),
            }
            // Limits the request rate where connections are cut at once.
            tokio::time::sleep(MIN_RETRY_PAUSE.saturating_sub(opened.elapsed())).await;
        }
    }
}
