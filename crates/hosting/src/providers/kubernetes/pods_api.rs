//! The Kubernetes API calls of the provider: create, get, delete, list and watch pods, and create their secrets.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, WatchEvent};
use k8s_openapi::{NamespaceResourceScope, Resource};
use reqwest::Method;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::api_client::{ApiClient, ApiRequest, KubeApiError, LineReader, to_json};
use super::args::KubernetesArgs;
use super::kubeconfig_source;
use super::pod_cache::PodDeletion;
use super::pod_status::{PodObject, PodState, pod_state};
use crate::ProviderError;

/// Duration of one watch request. Silence beyond it means that the connection is dead.
const WATCH_DURATION: Duration = Duration::from_secs(45);

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const GONE: u16 = 410;

/// Client for the pods of one namespace.
#[derive(Clone)]
pub struct PodsApi {
    client: Arc<ApiClient>,
    namespace: String,
}

/// An event of a watch, with the name of the pod.
pub enum PodEvent {
    Changed(String, PodState),
    Deleted(String),
}

#[derive(Deserialize)]
struct PodList {
    metadata: ListMeta,
    items: Vec<PodObject>,
}

impl PodsApi {
    /// Loads the configuration of the cluster. Does not connect.
    pub fn open(args: &KubernetesArgs) -> Result<Self, ProviderError> {
        let config = kubeconfig_source::load(args.kubernetes_config.as_deref(), args.kubernetes_context.as_deref())?;
        let namespace = args.kubernetes_namespace.clone().or_else(|| config.namespace.clone());
        let client = ApiClient::new(config).map_err(|reason| ProviderError::KubernetesConfigUnusable { reason })?;
        Ok(Self { client: Arc::new(client), namespace: namespace.unwrap_or_else(|| "default".to_owned()) })
    }

    /// Creates a pod, or returns the one of that name which an earlier attempt created.
    pub async fn create_pod(&self, pod: &Pod) -> Result<PodObject, KubeApiError> {
        match self.create(pod).await {
            Err(KubeApiError::Status(_, CONFLICT)) => {
                self.call_pod(Method::GET, pod.metadata.name.as_deref().unwrap_or_default(), None).await
            }
            created => created,
        }
    }

    /// The pod of this name; `None` if there is none.
    pub async fn get_pod(&self, name: &str) -> Result<Option<PodObject>, KubeApiError> {
        match self.call_pod(Method::GET, name, None).await {
            Err(KubeApiError::Status(_, NOT_FOUND)) => Ok(None),
            got => got.map(Some),
        }
    }

    /// Creates a secret. One that exists already is left as it is.
    pub async fn create_secret(&self, secret: &Secret) -> Result<(), KubeApiError> {
        match self.create::<Secret, IgnoredAny>(secret).await {
            Err(KubeApiError::Status(_, CONFLICT)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests the deletion of a pod. A pod that does not exist counts as deleted.
    pub async fn delete_pod(&self, deletion: &PodDeletion) -> Result<(), KubeApiError> {
        let options = DeleteOptions {
            grace_period_seconds: deletion.grace_seconds.map(i64::from),
            propagation_policy: Some("Background".to_owned()),
            ..Default::default()
        };
        match self.call_pod::<IgnoredAny>(Method::DELETE, &deletion.name, Some(to_json(&options)?)).await {
            Err(KubeApiError::Status(_, NOT_FOUND)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All pods that match the selector, and the resource version from which to watch.
    pub async fn list(&self, selector: &str) -> Result<(Vec<(String, PodState)>, String), KubeApiError> {
        let (path, query) = (self.collection_path::<Pod>(), [("labelSelector", selector)]);
        let list: PodList =
            self.client.call(ApiRequest { method: Method::GET, path: &path, query: &query, body: None }).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        Ok((list.items.iter().filter_map(pod_state).collect(), version))
    }

    /// Reports changes after `version` until the watch ends. Returns the version from which to continue, or `None` if the API has forgotten it
    /// (410 Gone) and a new list is needed.
    pub async fn watch(
        &self,
        selector: &str,
        version: String,
        mut on_event: impl FnMut(PodEvent),
    ) -> Result<Option<String>, KubeApiError> {
        let (path, seconds) = (self.collection_path::<Pod>(), WATCH_DURATION.as_secs().to_string());
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("labelSelector", selector),
            ("resourceVersion", &version),
            ("timeoutSeconds", &seconds),
        ];
        let request = ApiRequest { method: Method::GET, path: &path, query: &query, body: None };
        let mut lines = match self.client.open(request).await {
            Err(KubeApiError::Status(_, GONE)) => return Ok(None),
            opened => LineReader::new(opened?),
        };
        let mut version = version;
        while let Some(line) = lines.next(WATCH_DURATION).await? {
            let event = serde_json::from_slice(&line)
                .map_err(|error| KubeApiError::Failed(format!("cannot parse a watch event: {error}")))?;
            let pod: PodObject = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    pod_state(&pod).into_iter().for_each(|(name, state)| on_event(PodEvent::Changed(name, state)));
                    pod
                }
                WatchEvent::Deleted(pod) => {
                    // The event carries the last state of the pod, which may be the only report of how it ended.
                    pod_state(&pod).into_iter().for_each(|(name, state)| {
                        on_event(PodEvent::Changed(name.clone(), state));
                        on_event(PodEvent::Deleted(name));
                    });
                    pod
                }
                WatchEvent::Bookmark { resource_version, .. } => {
                    version = resource_version;
                    continue;
                }
                WatchEvent::ErrorStatus(status) => {
                    let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
                    return if code == GONE { Ok(None) } else { Err(KubeApiError::from_status(status, code)) };
                }
                WatchEvent::ErrorOther(what) => return Err(KubeApiError::Failed(what.0.to_string())),
            };
            version = pod.metadata.resource_version.unwrap_or(version);
        }
        Ok(Some(version))
    }

    /// Creates an object. `A` holds the fields of the response that are needed.
    async fn create<K, A>(&self, object: &K) -> Result<A, KubeApiError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize,
        A: DeserializeOwned,
    {
        let (path, body) = (self.collection_path::<K>(), Some(to_json(object)?));
        self.client.call(ApiRequest { method: Method::POST, path: &path, query: &[], body }).await
    }

    async fn call_pod<A: DeserializeOwned>(
        &self,
        method: Method,
        name: &str,
        body: Option<Vec<u8>>,
    ) -> Result<A, KubeApiError> {
        let [api, version, namespaces, namespace, pods] = self.collection_path::<Pod>();
        let path = [api, version, namespaces, namespace, pods, name];
        self.client.call(ApiRequest { method, path: &path, query: &[], body }).await
    }

    /// Path of a collection of the core API group.
    fn collection_path<K: Resource<Scope = NamespaceResourceScope>>(&self) -> [&str; 5] {
        ["api", K::VERSION, "namespaces", &self.namespace, K::URL_PATH_SEGMENT]
    }
}
