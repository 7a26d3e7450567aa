//! The `kubernetes` provider: nodes are pods that run `corro agent`. They live apart from the server and survive its restart;
//! which ones are this server's is told by their labels. `pod` decides what is sent, `seen` and `view` what it means,
//! `cluster` asks, over `wire`, the cluster that `access` finds; here they are put together behind [`Provider`].

mod access;
pub mod args;
mod cluster;
mod kubeconfig;
mod login;
mod pod;
mod seen;
mod view;
mod wire;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::hosting::HostingArgs;
use args::{KubernetesArgs, Settings};
use cluster::{CallError, Cluster, News};
pub use pod::{Home, LANDMARK};
use seen::Shown;
use view::{Removal, View};

/// So many pods are made at once.
const AT_ONCE: usize = 8;
/// Between tries that fail: from the first to the last of these.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// What is known before the server runs: which cluster, and what its nodes are like.
pub struct Prepared {
    cluster: Cluster,
    settings: Settings,
    server_url: Option<String>,
}

pub struct KubernetesNodes {
    shared: Arc<Shared>,
    runtime: Handle,
    watch: JoinHandle<()>,
}

struct Shared {
    cluster: Cluster,
    settings: Settings,
    home: Home,
    selector: String,
    view: Mutex<View>,
    seats: Semaphore,
}

impl Prepared {
    pub fn new(args: &KubernetesArgs, hosting: &HostingArgs) -> Result<Self, Failure> {
        let (settings, server_url) = (args.settings()?, args.kubernetes_server_url.clone());
        if server_url.is_none() && !hosting.has_name() {
            return Err(Failure::usage("pods must be able to reach this server, and it has no name that they know")
                .hint("add --tls, --listen 0.0.0.0:8470 and --name corro.corro.svc, or say how with --kubernetes-server-url URL"));
        }
        Ok(Self { cluster: Cluster::open(args)?, settings, server_url })
    }

    /// Begins to watch the cluster.
    pub fn begin(self, mut home: Home) -> KubernetesNodes {
        home.url = self.server_url.unwrap_or(home.url);
        let selector = pod::selector(&home.instance);
        let (view, seats) = (Mutex::default(), Semaphore::new(AT_ONCE));
        let shared = Arc::new(Shared { cluster: self.cluster, settings: self.settings, home, selector, view, seats });
        let watch = tokio::spawn(shared.clone().watch());
        KubernetesNodes { shared, runtime: Handle::current(), watch }
    }
}

impl Drop for KubernetesNodes {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Provider for KubernetesNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        let mut mark = [0u8; 3];
        getrandom::fill(&mut mark).expect("Linux has random numbers");
        let name = pod::name(&node.id, &mark.map(|byte| format!("{byte:02x}")).concat());
        let Some((name, given_up)) = self.shared.view().begin(&node.id, name) else { return };
        let pod = pod::pod(&name, node, &self.shared.home, &self.shared.settings);
        self.runtime.spawn(self.shared.clone().make(node.id.clone(), pod, token, given_up));
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        self.shared.view().is_alive(node)
    }

    /// A machine that the cluster does not hear cannot be told to end a pod.
    fn can_end_silent_nodes(&self) -> bool {
        false
    }

    fn ask_to_stop(&self, node: &NodeId) {
        let removals = self.shared.view().ask_to_stop(node);
        let shared = self.shared.clone();
        self.runtime.spawn(async move { shared.delete(removals).await });
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        let Some(removals) = self.shared.view().remove(node, polite, Instant::now()) else { return true };
        if !removals.is_empty() {
            self.runtime.block_on(self.shared.delete(removals));
        }
        false
    }

    fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        self.shared.view().says(node)
    }

    fn remove_orphans(&self, known: &dyn Fn() -> BTreeSet<NodeId>) {
        let nodes = self.shared.view().nodes();
        let known = known();
        let orphans = self.shared.view().orphans(&nodes, &known, Instant::now());
        if !orphans.is_empty() {
            tracing::warn!(pods = orphans.len(), "pods of nodes that are no more are ended");
            self.runtime.block_on(self.shared.delete(orphans));
        }
    }
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().expect("no one panics while holding the view")
    }

    /// Makes a pod and its secret. What hinders it may pass (a quota, an API that restarts), so it is tried until it is done
    /// or the node is given up.
    async fn make(self: Arc<Self>, node: NodeId, pod: Pod, token: Secret, given_up: Arc<Notify>) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut pause = PAUSES.0;
        loop {
            let gives_up = self.view().is_given_up(&node);
            let made = match gives_up {
                // Whether an earlier try made one after all.
                true => self.cluster.find_pod(&name).await,
                false => self.try_make(&pod, &token).await.map(Some),
            };
            match made {
                Ok(pod) => {
                    tracing::info!(%node, pod = name, gives_up, "a pod is made");
                    let pod = pod.as_ref().and_then(seen::seen);
                    return self.view().made(&node, pod, Instant::now());
                }
                Err(error) => {
                    tracing::warn!(%node, pod = name, %error, "a pod cannot be made; it is tried again");
                    self.view().hindered(&node, &error.to_string());
                }
            }
            let _ = tokio::time::timeout(pause, given_up.notified()).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn try_make(&self, pod: &Pod, token: &Secret) -> Result<Shown, CallError> {
        let _seat = self.seats.acquire().await;
        let made = self.cluster.make_pod(pod).await?;
        self.cluster.make_secret(&pod::secret(&made.metadata, token, &self.home.landmark)).await?;
        Ok(made)
    }

    async fn delete(&self, removals: Vec<Removal>) {
        for removal in removals {
            match self.cluster.delete(&removal).await {
                Ok(()) => tracing::info!(pod = removal.name, grace = removal.grace, "a pod is asked to end"),
                Err(error) => {
                    tracing::warn!(pod = removal.name, %error, "a pod cannot be deleted; it is tried again")
                }
            }
        }
    }

    /// Keeps the view true for as long as the provider is there.
    async fn watch(self: Arc<Self>) {
        let mut pause = PAUSES.0;
        loop {
            match self.look().await {
                Ok(()) => pause = PAUSES.0,
                Err(error) => {
                    tracing::warn!(%error, "the Kubernetes API cannot be asked; it is tried again");
                    self.view().lost_sight(error.to_string());
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One list and the watches that follow it, until a list is needed again.
    async fn look(&self) -> Result<(), CallError> {
        let began = Instant::now();
        let (pods, mut version) = self.cluster.list(&self.selector).await?;
        self.view().listed(pods, began, Instant::now());
        loop {
            let opened = Instant::now();
            let tell = |news| match news {
                News::Is(name, seen) => self.view().changed(name, seen, Instant::now()),
                News::Gone(name) => self.view().deleted(&name),
            };
            match self.cluster.watch(&self.selector, version, tell).await? {
                Some(next) => version = next,
                None => return Ok(()),
            }
            // One that is cut again and again must not be asked for without a break.
            tokio::time::sleep(PAUSES.0.saturating_sub(opened.elapsed())).await;
        }
    }
}
