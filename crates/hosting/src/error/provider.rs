//! Errors of the node providers' options and of their preparation.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// An option of a provider that was not chosen.
    #[error("{flag} requires --provider {provider}")]
    OtherProvider { flag: &'static str, provider: &'static str },
    #[error("--provider slurm needs {program}, which is not on PATH")]
    SlurmProgramMissing { program: &'static str },
    #[error("{flag} {option}: sbatch would take it for a script")]
    SlurmOption { flag: &'static str, option: String },
    #[error("--slurm-node-dir {text}: use an absolute path of letters, digits and variables")]
    SlurmNodeDir { text: String },
    #[error("{flag} {}: use an absolute path", path.display())]
    RelativePath { flag: &'static str, path: PathBuf },
    /// The path of this program is unknown.
    #[error(transparent)]
    OwnPath(io::Error),
    #[error("--provider kubernetes needs an image for its nodes")]
    KubernetesImageMissing,
    #[error("--kubernetes-node-selector {text}: it is not a label")]
    KubernetesLabel { text: String },
    #[error("--kubernetes-toleration {text}: it is not a taint")]
    KubernetesToleration { text: String },
    #[error("pods must be able to reach this server, and it has no name that they know")]
    KubernetesServerUnnamed,
    #[error("cannot read the configuration of the Kubernetes cluster from {origin}: {reason}")]
    KubernetesConfigUnreadable { origin: String, reason: String },
    #[error("cannot use the configuration of the Kubernetes cluster: {reason}")]
    KubernetesConfigUnusable { reason: String },
}

impl ProviderError {
    /// Whether the command line is wrong and nothing was attempted.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::OtherProvider { .. }
            | Self::SlurmOption { .. }
            | Self::SlurmNodeDir { .. }
            | Self::RelativePath { .. }
            | Self::KubernetesImageMissing
            | Self::KubernetesLabel { .. }
            | Self::KubernetesToleration { .. }
            | Self::KubernetesServerUnnamed => true,
            Self::SlurmProgramMissing { .. }
            | Self::OwnPath(_)
            | Self::KubernetesConfigUnreadable { .. }
            | Self::KubernetesConfigUnusable { .. } => false,
        }
    }

    /// Remedy for the user.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::SlurmProgramMissing { .. } => {
                "install Slurm's client programs, or start the server on a machine that submits jobs"
            }
            Self::SlurmOption { flag, .. } => {
                return Some(format!("write option and value as one word, as in {flag}=--constraint=a100"));
            }
            Self::SlurmNodeDir { .. } => "write it as /scratch or '/scratch/$SLURM_JOB_ID'",
            Self::KubernetesImageMissing => {
                "name it with --kubernetes-image registry.example.org/corro:0.1.0; deploy/kubernetes/Containerfile makes one"
            }
            Self::KubernetesLabel { .. } => "write it as KEY=VALUE, such as gpu=a100",
            Self::KubernetesToleration { .. } => {
                "write it as KEY, KEY=VALUE or KEY=VALUE:NoSchedule (or PreferNoSchedule, NoExecute)"
            }
            Self::KubernetesServerUnnamed => {
                "add --tls, --listen 0.0.0.0:8470 and --name corro.corro.svc, or say how with --kubernetes-server-url URL"
            }
            Self::KubernetesConfigUnreadable { .. } => {
                "name a file with --kubernetes-config FILE (and --kubernetes-context), or run the server in the cluster as deploy/kubernetes has it"
            }
            Self::OtherProvider { .. }
            | Self::RelativePath { .. }
            | Self::OwnPath(_)
            | Self::KubernetesConfigUnusable { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
