//! Options of `corro server --provider kubernetes` and their validation. Talks to no cluster.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Toleration;

use crate::ProviderError;

/// Default seconds between SIGTERM and SIGKILL when a pod is deleted. The agent ends its job and reports it meanwhile.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const DEFAULT_GPU_RESOURCE: &str = "nvidia.com/gpu";
const DEFAULT_UID: i64 = 1000;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "With --provider kubernetes")]
pub struct KubernetesArgs {
    /// Container image of the pods. It must contain corro on its PATH, and everything that jobs need
    #[arg(long, value_name = "IMAGE")]
    kubernetes_image: Option<String>,

    /// Namespace of the pods [default: the namespace of the server's pod, or of the context]
    #[arg(long, value_name = "NAME")]
    pub kubernetes_namespace: Option<String>,

    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubernetes_config: Option<PathBuf>,

    /// Context in the kubeconfig file [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub kubernetes_context: Option<String>,

    /// URL at which pods reach this server [default: made from the first --name]
    #[arg(long, value_name = "URL")]
    pub kubernetes_server_url: Option<String>,

    /// Persistent volume claim that holds shares/, file-servers/ and job-shared/ of the server's data directory. The pods
    /// mount it too. Without it, pods mount shares over the network, which requires FUSE in the pods
    #[arg(long, value_name = "CLAIM")]
    kubernetes_shares_claim: Option<String>,

    /// Extended resource that counts GPUs [default: nvidia.com/gpu]
    #[arg(long, value_name = "RESOURCE")]
    kubernetes_gpu_resource: Option<String>,

    /// Node selector: label that the Kubernetes nodes must have. Can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    kubernetes_node_selector: Vec<String>,

    /// Taint that the pods tolerate, as KEY or KEY=VALUE, optionally followed by :EFFECT. Can be repeated
    #[arg(long, value_name = "TAINT")]
    kubernetes_toleration: Vec<String>,

    /// Secret with the login for the image registry. Can be repeated
    #[arg(long, value_name = "NAME")]
    kubernetes_pull_secret: Vec<String>,

    /// Service account of the pods. Its token is not mounted [default: the namespace's default]
    #[arg(long, value_name = "NAME")]
    kubernetes_service_account: Option<String>,

    /// User and group id of the pods. With --kubernetes-shares-claim, use those of this server [default: 1000]
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(i64).range(1..=i64::from(i32::MAX)))]
    kubernetes_user: Option<i64>,

    /// Priority class of pods in low-priority clusters
    #[arg(long, value_name = "NAME")]
    kubernetes_low_priority_class: Option<String>,

    /// Seconds that a node has to end its job after its pod is deleted [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(1..=3600))]
    kubernetes_grace: Option<i64>,
}

/// Validated settings that all pods of this server share.
#[derive(Clone, Debug)]
pub struct PodSettings {
    pub image: String,
    pub shares_claim: Option<String>,
    pub gpu_resource: String,
    pub node_selector: Vec<(String, String)>,
    pub tolerations: Vec<Toleration>,
    pub pull_secrets: Vec<String>,
    pub service_account: Option<String>,
    pub user: i64,
    pub low_priority_class: Option<String>,
    pub grace: i64,
}

impl KubernetesArgs {
    /// All flags of this provider, and whether each was given.
    pub fn flags(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("--kubernetes-image", self.kubernetes_image.is_some()),
            ("--kubernetes-namespace", self.kubernetes_namespace.is_some()),
            ("--kubernetes-config", self.kubernetes_config.is_some()),
            ("--kubernetes-context", self.kubernetes_context.is_some()),
            ("--kubernetes-server-url", self.kubernetes_server_url.is_some()),
            ("--kubernetes-shares-claim", self.kubernetes_shares_claim.is_some()),
            ("--kubernetes-gpu-resource", self.kubernetes_gpu_resource.is_some()),
            ("--kubernetes-node-selector", !self.kubernetes_node_selector.is_empty()),
            ("--kubernetes-toleration", !self.kubernetes_toleration.is_empty()),
            ("--kubernetes-pull-secret", !self.kubernetes_pull_secret.is_empty()),
            ("--kubernetes-service-account", self.kubernetes_service_account.is_some()),
            ("--kubernetes-user", self.kubernetes_user.is_some()),
            ("--kubernetes-low-priority-class", self.kubernetes_low_priority_class.is_some()),
            ("--kubernetes-grace", self.kubernetes_grace.is_some()),
        ]
    }

    /// Validates the options.
    pub fn to_settings(&self) -> Result<PodSettings, ProviderError> {
        let image = self.kubernetes_image.clone().filter(|image| !image.trim().is_empty());
        let image = image.ok_or(ProviderError::KubernetesImageMissing)?;
        let selector = self.kubernetes_node_selector.iter().map(|text| parse_label(text));
        let tolerations = self.kubernetes_toleration.iter().map(|text| parse_toleration(text));
        Ok(PodSettings {
            image,
            shares_claim: self.kubernetes_shares_claim.clone(),
            gpu_resource: self.kubernetes_gpu_resource.clone().unwrap_or_else(|| DEFAULT_GPU_RESOURCE.to_owned()),
            node_selector: selector.collect::<Result<_, _>>()?,
            tolerations: tolerations.collect::<Result<_, _>>()?,
            pull_secrets: self.kubernetes_pull_secret.clone(),
            service_account: self.kubernetes_service_account.clone(),
            user: self.kubernetes_user.unwrap_or(DEFAULT_UID),
            low_priority_class: self.kubernetes_low_priority_class.clone(),
            grace: self.kubernetes_grace.unwrap_or(DEFAULT_GRACE_SECONDS),
        })
    }
}

fn parse_label(text: &str) -> Result<(String, String), ProviderError> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ProviderError::KubernetesLabel { text: text.to_owned() }),
    }
}

fn parse_toleration(text: &str) -> Result<Toleration, ProviderError> {
    let (taint, effect) = match text.rsplit_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (taint, None),
    };
    let known = effect.is_none_or(|effect| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect));
    if key.is_empty() || !known {
        return Err(ProviderError::KubernetesToleration { text: text.to_owned() });
    }
    Ok(Toleration {
        key: Some(key.to_owned()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
        toleration_seconds: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: KubernetesArgs,
    }

    fn settings(words: &[&str]) -> Result<PodSettings, ProviderError> {
        let line: Line = clap::Parser::try_parse_from([&["corro"], words].concat()).expect("flags that there are");
        line.args.to_settings()
    }

    #[test]
    fn invalid_options_are_rejected_by_name() {
        let image = ["--kubernetes-image", "corro"];
        let check = |words: &[&str], expected: &str| {
            let error = settings(words).err().unwrap_or_else(|| panic!("{words:?} was accepted"));
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(&[], "needs an image");
        check(&["--kubernetes-image", " "], "needs an image");
        check(&[&image[..], &["--kubernetes-node-selector", "gpu"]].concat(), "--kubernetes-node-selector gpu");
        check(&[&image[..], &["--kubernetes-toleration", "=x"]].concat(), "--kubernetes-toleration =x");
        check(&[&image[..], &["--kubernetes-toleration", "gpu:Never"]].concat(), "gpu:Never");
    }

    #[test]
    fn tolerations_are_parsed() {
        for (text, expected) in [
            ("gpu", r#"{"key":"gpu","operator":"Exists"}"#),
            ("gpu=a100", r#"{"key":"gpu","operator":"Equal","value":"a100"}"#),
            ("example.org/gpu:NoSchedule", r#"{"effect":"NoSchedule","key":"example.org/gpu","operator":"Exists"}"#),
            ("gpu=:NoExecute", r#"{"effect":"NoExecute","key":"gpu","operator":"Equal","value":""}"#),
        ] {
            let Ok(toleration) = parse_toleration(text) else { panic!("{text} is a taint") };
            assert_eq!(serde_json::to_string(&toleration).expect("JSON"), expected);
        }
    }
}
