//! Finds the configuration of the cluster, in kubectl's order: the file that was given, `$KUBECONFIG`, `~/.kube/config`, or the pod's service
//! account. Reads files and variables; `kubeconfig` interprets them. Never connects.

use std::env;
use std::path::{Path, PathBuf};

use super::kubeconfig::{AuthMethod, ClusterConfig, FileOrData, Kubeconfig};
use crate::ProviderError;

/// Directory in which a pod finds its service account.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Loads the configuration of `context`, or of the current one.
pub fn load(file: Option<&Path>, context: Option<&str>) -> Result<ClusterConfig, ProviderError> {
    let (origin, config) = match file {
        Some(file) => (
            file.display().to_string(),
            read_merged(&[file.to_owned()]).and_then(|files| files.cluster_config(context)),
        ),
        None => from_environment(context),
    };
    config.map_err(|reason| ProviderError::KubernetesConfigUnreadable { origin, reason })
}

fn from_environment(context: Option<&str>) -> (String, Result<ClusterConfig, String>) {
    let named = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let (source, files): (_, Vec<PathBuf>) = match (named, env::home_dir()) {
        (Some(paths), _) => ("$KUBECONFIG".to_owned(), env::split_paths(&paths).collect()),
        (None, home) => ("~/.kube/config".to_owned(), home.into_iter().map(|home| home.join(".kube/config")).collect()),
    };
    // As in kubectl, files of $KUBECONFIG may be missing.
    let existing: Vec<_> = files.into_iter().filter(|file| file.exists()).collect();
    if !existing.is_empty() {
        return (source, read_merged(&existing).and_then(|files| files.cluster_config(context)));
    }
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if context.is_none() => (
            "the pod's service account".to_owned(),
            service_account_config(&host, &port, Path::new(SERVICE_ACCOUNT_DIR)),
        ),
        _ => (source, Err("the file does not exist, and the server runs in no pod".to_owned())),
    }
}

fn read_merged(files: &[PathBuf]) -> Result<Kubeconfig, String> {
    files.iter().try_fold(Kubeconfig::default(), |before, file| {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // Relative paths would break after a change of directory.
        let file = std::path::absolute(file).map_err(|error| error.to_string())?;
        let directory = file.parent().unwrap_or(Path::new("/"));
        let read = Kubeconfig::parse(&text, directory).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(before.merge(read))
    })
}

fn service_account_config(host: &str, port: &str, account: &Path) -> Result<ClusterConfig, String> {
    let namespace = account.join("namespace");
    let namespace = std::fs::read_to_string(&namespace).map_err(|error| format!("{}: {error}", namespace.display()))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(ClusterConfig {
        server: format!("https://{host}:{port}"),
        namespace: Some(namespace.trim().to_owned()),
        ca: Some(FileOrData::File(account.join("ca.crt"))),
        client_cert: None,
        auth: AuthMethod::TokenFile(account.join("token")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_uses_its_service_account() {
        let account = tempfile::tempdir().expect("a directory");
        assert!(
            service_account_config("10.0.0.1", "443", account.path()).is_err_and(|error| error.contains("namespace"))
        );
        std::fs::write(account.path().join("namespace"), "corro\n").expect("a file");
        let config = service_account_config("10.0.0.1", "443", account.path()).expect("a configuration");
        assert_eq!((config.server.as_str(), config.namespace.as_deref()), ("https://10.0.0.1:443", Some("corro")));
        assert_eq!(config.auth, AuthMethod::TokenFile(account.path().join("token")));
        assert_eq!(
            service_account_config("fd00::1", "443", account.path()).expect("a configuration").server,
            "https://[fd00::1]:443"
        );
    }

    #[test]
    fn an_unusable_file_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        for (text, expected) in
            [(None, "No such file"), (Some("clusters: 5"), "clusters"), (Some("{}"), "no current context")]
        {
            if let Some(text) = text {
                std::fs::write(&file, text).expect("a file");
            }
            let message = load(Some(&file), None).expect_err("it cannot be used").to_string();
            assert!(message.contains(expected) && message.contains("config"), "{message}");
        }
    }
}
