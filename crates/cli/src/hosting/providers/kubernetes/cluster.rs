//! The calls to the Kubernetes API, each with a deadline, and the view of this server's pods that a watch keeps true. What
//! to ask for is decided elsewhere.

use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Request, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::object::NotUsed;
use kube::discovery::ApiResource;
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::args::KubernetesArgs;
use super::seen::{Seen, Shown, seen};
use super::view::Removal;
use crate::failure::Failure;

/// One answer may take this long.
const CALL: Duration = Duration::from_secs(15);

/// A watch is taken up again after this many seconds; silence beyond it is a connection that nobody is at the end of.
const WATCH: u32 = 45;

#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    pods: Api<Shown>,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Refused(String, u16),
    #[error("{0}")]
    Failed(String),
    #[error("no answer within {} s", CALL.as_secs())]
    TooSlow,
}

/// What a watch tells.
pub enum News {
    Is(String, Seen),
    Gone(String),
}

impl Cluster {
    /// Reads how the cluster is reached; asks it nothing yet.
    pub async fn open(args: &KubernetesArgs) -> Result<Self, Failure> {
        let config = config(args.kubernetes_config.as_deref(), args.kubernetes_context.as_deref()).await?;
        let namespace = args.kubernetes_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| {
            Failure::new(format!("cannot use the way to the Kubernetes cluster: {}", chain(&error)))
        })?;
        let pods = Api::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&()));
        Ok(Self { client, namespace, pods })
    }

    /// Makes the pod, or finds the one that an earlier try made.
    pub async fn make_pod(&self, pod: &Pod) -> Result<Shown, CallError> {
        match self.create::<Pod, Shown>(pod).await {
            Err(CallError::Refused(_, CONFLICT)) => {
                call(self.pods.get(pod.metadata.name.as_deref().unwrap_or_default())).await
            }
            made => made,
        }
    }

    pub async fn find_pod(&self, name: &str) -> Result<Option<Shown>, CallError> {
        call(self.pods.get_opt(name)).await
    }

    pub async fn make_secret(&self, secret: &Secret) -> Result<(), CallError> {
        match self.create::<Secret, NotUsed>(secret).await {
            Err(CallError::Refused(_, CONFLICT)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends the API's own type; of the answer only what is needed is read.
    async fn create<K, A>(&self, object: &K) -> Result<A, CallError>
    where
        K: Resource<DynamicType = ()> + Serialize,
        A: DeserializeOwned,
    {
        let body = serde_json::to_vec(object).map_err(|error| CallError::Failed(error.to_string()))?;
        let request = Request::new(K::url_path(&(), Some(&self.namespace))).create(&PostParams::default(), body);
        call(self.client.request(request.map_err(|error| CallError::Failed(error.to_string()))?)).await
    }

    /// Done when it is asked for, or when there is nothing (any more) to ask it for.
    pub async fn delete(&self, removal: &Removal) -> Result<(), CallError> {
        let params = DeleteParams { grace_period_seconds: removal.grace, ..DeleteParams::background() };
        match call(self.pods.delete(&removal.name, &params)).await {
            Err(CallError::Refused(_, NOT_FOUND)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All pods there are, and the version from which a watch goes on.
    pub async fn list(&self, selector: &str) -> Result<(Vec<(String, Seen)>, String), CallError> {
        let list = call(self.pods.list(&ListParams::default().labels(selector))).await?;
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
        let params = WatchParams::default().labels(selector).timeout(WATCH);
        let stream = match call(self.pods.watch(&params, &version)).await {
            Err(CallError::Refused(_, GONE)) => return Ok(None),
            opened => opened?,
        };
        pin_mut!(stream);
        let mut version = version;
        loop {
            let silence = CALL + Duration::from_secs(WATCH.into());
            let event = match tokio::time::timeout(silence, stream.next()).await {
                Err(_) => return Err(CallError::TooSlow),
                Ok(None) => return Ok(Some(version)),
                Ok(Some(event)) => event.map_err(CallError::of),
            };
            let pod = match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    seen(&pod).into_iter().for_each(|(name, seen)| tell(News::Is(name, seen)));
                    pod
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    // Shown as it was at the end: how it ended is known only from here.
                    seen(&pod).into_iter().for_each(|(name, seen)| {
                        tell(News::Is(name.clone(), seen));
                        tell(News::Gone(name));
                    });
                    pod
                }
                Ok(WatchEvent::Bookmark(mark)) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(status)) if status.code == GONE => return Ok(None),
                Ok(WatchEvent::Error(status)) => return Err(CallError::Refused(status.message, status.code)),
                Err(CallError::Refused(_, GONE)) => return Ok(None),
                Err(error) => return Err(error),
            };
            version = pod.metadata.resource_version.unwrap_or(version);
        }
    }
}

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const GONE: u16 = 410;

impl CallError {
    fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let text = [&status.message, &status.reason].into_iter().find(|text| !text.is_empty()).cloned();
                CallError::Refused(text.unwrap_or_else(|| format!("status {}", status.code)), status.code)
            }
            other => CallError::Failed(chain(&other)),
        }
    }
}

async fn call<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL, answer).await {
        Ok(answer) => answer.map_err(CallError::of),
        Err(_) => Err(CallError::TooSlow),
    }
}

/// A file that was named, else what the environment offers: a pod's service account, or the user's configuration.
async fn config(file: Option<&Path>, context: Option<&str>) -> Result<Config, Failure> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let refused = |what: String, error: &dyn std::error::Error| {
        Failure::new(format!("cannot read how to reach the Kubernetes cluster from {what}: {}", chain(error)))
            .hint("name a file with --kubernetes-config FILE (and --kubernetes-context), or run the server in the cluster as deploy/kubernetes has it")
    };
    if let Some(file) = file {
        let read = Kubeconfig::read_from(file).map_err(|error| refused(file.display().to_string(), &error))?;
        let config = Config::from_custom_kubeconfig(read, &options).await;
        return config.map_err(|error| refused(file.display().to_string(), &error));
    }
    if context.is_some() {
        let config = Config::from_kubeconfig(&options).await;
        return config.map_err(|error| refused("$KUBECONFIG or ~/.kube/config".to_owned(), &error));
    }
    Config::infer().await.map_err(|error| refused("the environment".to_owned(), &error))
}

/// The error and its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}
