//! Where it is written how to reach the cluster: a file that was named, the user's configuration, or what a pod is given.
//! Reads files and variables; what they mean is decided in `kubeconfig`.

use std::env;
use std::path::{Path, PathBuf};

use super::kubeconfig::{Content, Kubeconfig, Login, Way};
use crate::failure::Failure;

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Asks the cluster nothing.
pub fn way(file: Option<&Path>, context: Option<&str>) -> Result<Way, Failure> {
    let (place, found) = match file {
        Some(file) => (file.display().to_string(), read(&[file.to_owned()]).and_then(|files| files.way(context))),
        None => from_environment(context),
    };
    found.map_err(|error| {
        Failure::new(format!("cannot read how to reach the Kubernetes cluster from {place}: {error}"))
            .hint("name a file with --kubernetes-config FILE (and --kubernetes-context), or run the server in the cluster as deploy/kubernetes has it")
    })
}

fn from_environment(context: Option<&str>) -> (String, Result<Way, String>) {
    let named = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let (place, files): (_, Vec<PathBuf>) = match (named, env::home_dir()) {
        (Some(paths), _) => ("$KUBECONFIG".to_owned(), env::split_paths(&paths).collect()),
        (None, home) => ("~/.kube/config".to_owned(), home.into_iter().map(|home| home.join(".kube/config")).collect()),
    };
    // As kubectl does: of several that are named not all must be there.
    let there: Vec<_> = files.into_iter().filter(|file| file.exists()).collect();
    if !there.is_empty() {
        return (place, read(&there).and_then(|files| files.way(context)));
    }
    let service = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    match (service("KUBERNETES_SERVICE_HOST"), service("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if context.is_none() => {
            ("the pod's service account".to_owned(), in_pod(&host, &port, Path::new(ACCOUNT)))
        }
        _ => (place, Err("there is no such file, and this is no pod of a cluster".to_owned())),
    }
}

fn read(files: &[PathBuf]) -> Result<Kubeconfig, String> {
    files.iter().try_fold(Kubeconfig::default(), |before, file| {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // A relative path would mean another file after a change of directory.
        let file = std::path::absolute(file).map_err(|error| error.to_string())?;
        let directory = file.parent().unwrap_or(Path::new("/"));
        let read = Kubeconfig::parse(&text, directory).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(before.and(read))
    })
}

fn in_pod(host: &str, port: &str, account: &Path) -> Result<Way, String> {
    let namespace = account.join("namespace");
    let namespace = std::fs::read_to_string(&namespace).map_err(|error| format!("{}: {error}", namespace.display()))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(Way {
        server: format!("https://{host}:{port}"),
        namespace: Some(namespace.trim().to_owned()),
        authority: Some(Content::In(account.join("ca.crt"))),
        identity: None,
        login: Login::TokenFile(account.join("token")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_where_its_cluster_is() {
        let account = tempfile::tempdir().expect("a directory");
        assert!(in_pod("10.0.0.1", "443", account.path()).is_err_and(|error| error.contains("namespace")));
        std::fs::write(account.path().join("namespace"), "corro\n").expect("a file");
        let way = in_pod("10.0.0.1", "443", account.path()).expect("a way");
        assert_eq!((way.server.as_str(), way.namespace.as_deref()), ("https://10.0.0.1:443", Some("corro")));
        assert_eq!(way.login, Login::TokenFile(account.path().join("token")));
        assert_eq!(in_pod("fd00::1", "443", account.path()).expect("a way").server, "https://[fd00::1]:443");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        for (text, says) in
            [(None, "No such file"), (Some("clusters: 5"), "clusters"), (Some("{}"), "no current context")]
        {
            if let Some(text) = text {
                std::fs::write(&file, text).expect("a file");
            }
            let failure = way(Some(&file), None).expect_err("it cannot be used");
            assert!(failure.message.contains(says) && failure.message.contains("config"), "{}", failure.message);
        }
    }
}
