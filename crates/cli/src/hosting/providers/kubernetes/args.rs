//! What `corro server --provider kubernetes` lets the operator choose, and what of it cannot be. Entered once, when the
//! server starts; nothing here talks to a cluster.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Toleration;

use crate::failure::Failure;

/// Seconds between SIGTERM and SIGKILL when somebody deletes a pod: the agent ends its job and says so.
const GRACE: i64 = 30;
const GPU: &str = "nvidia.com/gpu";
const USER: i64 = 1000;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Nodes as pods (--provider kubernetes)")]
pub struct KubernetesArgs {
    /// The image that nodes run: it has `corro` on its search path, and what jobs need
    #[arg(long, value_name = "IMAGE")]
    kubernetes_image: Option<String>,

    /// The namespace that pods are made in [default: the server's own in a cluster, else the one of the context]
    #[arg(long, value_name = "NAME")]
    pub kubernetes_namespace: Option<String>,

    /// How to reach the cluster from outside of it [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubernetes_config: Option<PathBuf>,

    /// The context in that file [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub kubernetes_context: Option<String>,

    /// How pods reach this server [default: by its first --name]
    #[arg(long, value_name = "URL")]
    pub kubernetes_server_url: Option<String>,

    /// The claim of the volume that holds shares/, file-servers/ and job-shared/ of this server's data directory, and which
    /// nodes see too. Without it nodes mount shares themselves, which needs FUSE in the pods
    #[arg(long, value_name = "CLAIM")]
    kubernetes_shares_claim: Option<String>,

    /// The resource that one GPU is [default: nvidia.com/gpu]
    #[arg(long, value_name = "RESOURCE")]
    kubernetes_gpu_resource: Option<String>,

    /// A label that machines must have to get a node; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    kubernetes_node_selector: Vec<String>,

    /// A taint that nodes bear, as KEY, KEY=VALUE, or either with :EFFECT; may be repeated
    #[arg(long, value_name = "TAINT")]
    kubernetes_toleration: Vec<String>,

    /// The secret that opens the image's registry; may be repeated
    #[arg(long, value_name = "NAME")]
    kubernetes_pull_secret: Vec<String>,

    /// The service account of nodes; they get no token of it [default: the namespace's]
    #[arg(long, value_name = "NAME")]
    kubernetes_service_account: Option<String>,

    /// The user and group that nodes run as; with --kubernetes-shares-claim those of this server [default: 1000]
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(i64).range(1..=i64::from(i32::MAX)))]
    kubernetes_user: Option<i64>,

    /// The priority class of low-priority nodes
    #[arg(long, value_name = "NAME")]
    kubernetes_low_priority_class: Option<String>,

    /// Seconds that a node has to end its job when its pod is deleted [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(1..=3600))]
    kubernetes_grace: Option<i64>,
}

/// What every pod of this server has in common, but for what only the running server knows.
#[derive(Clone, Debug)]
pub struct Settings {
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
    /// All flags, and whether they were given.
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

    /// Refuses what no cluster would take.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let image = self.kubernetes_image.clone().filter(|image| !image.trim().is_empty()).ok_or_else(|| {
            Failure::usage("--provider kubernetes needs an image for its nodes")
                .hint("name it with --kubernetes-image registry.example.org/corro:0.1.0; deploy/kubernetes/Containerfile makes one")
        })?;
        let selector = self.kubernetes_node_selector.iter().map(|text| selector(text));
        let tolerations = self.kubernetes_toleration.iter().map(|text| toleration(text));
        Ok(Settings {
            image,
            shares_claim: self.kubernetes_shares_claim.clone(),
            gpu_resource: self.kubernetes_gpu_resource.clone().unwrap_or_else(|| GPU.to_owned()),
            node_selector: selector.collect::<Result<_, _>>()?,
            tolerations: tolerations.collect::<Result<_, _>>()?,
            pull_secrets: self.kubernetes_pull_secret.clone(),
            service_account: self.kubernetes_service_account.clone(),
            user: self.kubernetes_user.unwrap_or(USER),
            low_priority_class: self.kubernetes_low_priority_class.clone(),
            grace: self.kubernetes_grace.unwrap_or(GRACE),
        })
    }
}

fn selector(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("--kubernetes-node-selector {text}: it is not a label"))
            .hint("write it as KEY=VALUE, such as gpu=a100")),
    }
}

fn toleration(text: &str) -> Result<Toleration, Failure> {
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
        return Err(Failure::usage(format!("--kubernetes-toleration {text}: it is not a taint"))
            .hint("write it as KEY, KEY=VALUE or KEY=VALUE:NoSchedule (or PreferNoSchedule, NoExecute)"));
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

    fn settings(words: &[&str]) -> Result<Settings, Failure> {
        let line: Line = clap::Parser::try_parse_from([&["corro"], words].concat()).expect("flags that there are");
        line.args.settings()
    }

    #[test]
    fn what_no_cluster_would_take_is_refused_by_name() {
        let image = ["--kubernetes-image", "corro"];
        let check = |words: &[&str], says: &str| {
            let failure = settings(words).err().unwrap_or_else(|| panic!("{words:?} was taken"));
            assert!(failure.message.contains(says), "{}", failure.message);
        };
        check(&[], "needs an image");
        check(&["--kubernetes-image", " "], "needs an image");
        check(&[&image[..], &["--kubernetes-node-selector", "gpu"]].concat(), "--kubernetes-node-selector gpu");
        check(&[&image[..], &["--kubernetes-toleration", "=x"]].concat(), "--kubernetes-toleration =x");
        check(&[&image[..], &["--kubernetes-toleration", "gpu:Never"]].concat(), "gpu:Never");
    }

    #[test]
    fn taints_are_borne_by_key_value_and_effect() {
        for (text, expected) in [
            ("gpu", r#"{"key":"gpu","operator":"Exists"}"#),
            ("gpu=a100", r#"{"key":"gpu","operator":"Equal","value":"a100"}"#),
            ("example.org/gpu:NoSchedule", r#"{"effect":"NoSchedule","key":"example.org/gpu","operator":"Exists"}"#),
            ("gpu=:NoExecute", r#"{"effect":"NoExecute","key":"gpu","operator":"Equal","value":""}"#),
        ] {
            let Ok(taken) = toleration(text) else { panic!("{text} is a taint") };
            assert_eq!(serde_json::to_string(&taken).expect("JSON"), expected);
        }
    }
}
