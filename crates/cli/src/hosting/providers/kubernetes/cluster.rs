//! The calls to the Kubernetes API that the provider makes. What to ask for is decided elsewhere, and `wire` sends it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, WatchEvent};
use k8s_openapi::{NamespaceResourceScope, Resource};
use reqwest::Method;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::access;
use super::args::KubernetesArgs;
use super::seen::{Seen, Shown, seen};
use super::view::Removal;
pub use super::wire::CallError;
use super::wire::{Ask, Lines, Wire, json};
use crate::failure::Failure;

/// A watch is taken up again after this; silence beyond it is a connection that nobody is at the end of.
const WATCH: Duration = Duration::from_secs(45);

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const GONE: u16 = 410;

#[derive(Clone)]
pub struct Cluster {
    wire: Arc<Wire>,
    namespace: String,
}

/// What a watch tells.
pub enum News {
    Is(String, Seen),
    Gone(String),
}

#[derive(Deserialize)]
struct Listed {
    metadata: ListMeta,
    items: Vec<Shown>,
}

impl Cluster {
    /// Reads how the cluster is reached; asks it nothing yet.
    pub fn open(args: &KubernetesArgs) -> Result<Self, Failure> {
        let way = access::way(args.kubernetes_config.as_deref(), args.kubernetes_context.as_deref())?;
        let namespace = args.kubernetes_namespace.clone().or_else(|| way.namespace.clone());
        let wire = Wire::new(way)
            .map_err(|error| Failure::new(format!("cannot use the way to the Kubernetes cluster: {error}")))?;
        Ok(Self { wire: Arc::new(wire), namespace: namespace.unwrap_or_else(|| "default".to_owned()) })
    }

    /// Makes the pod, or finds the one that an earlier try made.
    pub async fn make_pod(&self, pod: &Pod) -> Result<Shown, CallError> {
        match self.create(pod).await {
            Err(CallError::Refused(_, CONFLICT)) => {
                self.pod(Method::GET, pod.metadata.name.as_deref().unwrap_or_default(), None).await
            }
            made => made,
        }
    }

    pub async fn find_pod(&self, name: &str) -> Result<Option<Shown>, CallError> {
        match self.pod(Method::GET, name, None).await {
            Err(CallError::Refused(_, NOT_FOUND)) => Ok(None),
            found => found.map(Some),
        }
    }

    pub async fn make_secret(&self, secret: &Secret) -> Result<(), CallError> {
        match self.create::<Secret, IgnoredAny>(secret).await {
            Err(CallError::Refused(_, CONFLICT)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Done when it is asked for, or when there is nothing (any more) to ask it for.
    pub async fn delete(&self, removal: &Removal) -> Result<(), CallError> {
        let options = DeleteOptions {
            grace_period_seconds: removal.grace.map(i64::from),
            propagation_policy: Some("Background".to_owned()),
            ..Default::default()
        };
        match self.pod::<IgnoredAny>(Method::DELETE, &removal.name, Some(json(&options)?)).await {
            Err(CallError::Refused(_, NOT_FOUND)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All pods there are, and the version from which a watch goes on.
    pub async fn list(&self, selector: &str) -> Result<(Vec<(String, Seen)>, String), CallError> {
        let (path, query) = (self.path::<Pod>(), [("labelSelector", selector)]);
        let list: Listed = self.wire.call(Ask { method: Method::GET, path: &path, query: &query, body: None }).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        Ok((list.items.iter().filter_map(seen).collect(), version))
    }

    /// Tells what changes after `version` until the watch ends, and from which version to go on; `None` when that is too
    /// long ago.
    pub async fn watch(
        &self,
        selector: &str,
        version: String,
        mut tell: impl FnMut(News),
    ) -> Result<Option<String>, CallError> {
        let (path, seconds) = (self.path::<Pod>(), WATCH.as_secs().to_string());
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("labelSelector", selector),
            ("resourceVersion", &version),
            ("timeoutSeconds", &seconds),
        ];
        let ask = Ask { method: Method::GET, path: &path, query: &query, body: None };
        let mut lines = match self.wire.open(ask).await {
            Err(CallError::Refused(_, GONE)) => return Ok(None),
            opened => Lines::new(opened?),
        };
        let mut version = version;
        while let Some(line) = lines.next(WATCH).await? {
            let event = serde_json::from_slice(&line)
                .map_err(|error| CallError::Failed(format!("what it tells is not understood: {error}")))?;
            let pod: Shown = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    seen(&pod).into_iter().for_each(|(name, seen)| tell(News::Is(name, seen)));
                    pod
                }
                WatchEvent::Deleted(pod) => {
                    // Shown as it was at the end: how it ended is known only from here.
                    seen(&pod).into_iter().for_each(|(name, seen)| {
                        tell(News::Is(name.clone(), seen));
                        tell(News::Gone(name));
                    });
                    pod
                }
                WatchEvent::Bookmark { resource_version, .. } => {
                    version = resource_version;
                    continue;
                }
                WatchEvent::ErrorStatus(status) => {
                    let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
                    return if code == GONE { Ok(None) } else { Err(CallError::refused(status, code)) };
                }
                WatchEvent::ErrorOther(what) => return Err(CallError::Failed(what.0.to_string())),
            };
            version = pod.metadata.resource_version.unwrap_or(version);
        }
        Ok(Some(version))
    }

    /// Sends the API's own type; of the answer only what is needed is read.
    async fn create<K, A>(&self, object: &K) -> Result<A, CallError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize,
        A: DeserializeOwned,
    {
        let (path, body) = (self.path::<K>(), Some(json(object)?));
        self.wire.call(Ask { method: Method::POST, path: &path, query: &[], body }).await
    }

    async fn pod<A: DeserializeOwned>(
        &self,
        method: Method,
        name: &str,
        body: Option<Vec<u8>>,
    ) -> Result<A, CallError> {
        let [api, version, namespaces, namespace, pods] = self.path::<Pod>();
        let path = [api, version, namespaces, namespace, pods, name];
        self.wire.call(Ask { method, path: &path, query: &[], body }).await
    }

    /// Both kinds that are asked for are of the first group, whose name is empty.
    fn path<K: Resource<Scope = NamespaceResourceScope>>(&self) -> [&str; 5] {
        ["api", K::VERSION, "namespaces", &self.namespace, K::URL_PATH_SEGMENT]
    }
}
