//! Finds the machine's container engine, Docker or Podman, by its Unix socket. Remote engines are not used, since they
//! do not see the node's paths.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Request timeout in seconds. Creating a container from a large image takes time on a busy disk.
const REQUEST_TIMEOUT_S: u64 = 300;
/// Time limit for connecting and reading the version.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A container engine that answers.
#[derive(Clone, Debug)]
pub struct Engine {
    pub docker: Docker,
    pub socket: PathBuf,
    /// Name and version: `Docker 20.10.24`.
    pub name: String,
}

/// No engine answers; holds the reason for each socket.
#[derive(Debug, Error)]
pub struct NoEngine {
    tried: Vec<(PathBuf, String)>,
}

impl fmt::Display for NoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tried.is_empty() {
            return f.write_str("DOCKER_HOST does not name a socket of this machine (unix://PATH)");
        }
        let places: Vec<String> = self.tried.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect();
        write!(f, "no engine answers ({})", places.join("; "))
    }
}

/// Sockets that the engines' own commands would use: the one in `DOCKER_HOST` alone if set, else the defaults.
pub fn sockets(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    if let Some(host) = variable("DOCKER_HOST").filter(|host| !host.is_empty()) {
        return host.strip_prefix("unix://").map(PathBuf::from).into_iter().collect();
    }
    let own = variable("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let own = own.into_iter().flat_map(|own| [own.join("docker.sock"), own.join("podman/podman.sock")]);
    ["/var/run/docker.sock", "/run/podman/podman.sock"].into_iter().map(PathBuf::from).chain(own).collect()
}

/// The first engine that answers.
pub async fn find(sockets: &[PathBuf]) -> Result<Engine, NoEngine> {
    let mut tried = Vec::new();
    for socket in sockets {
        match timeout(PROBE_TIMEOUT, Engine::at(socket)).await {
            Ok(Ok(engine)) => return Ok(engine),
            Ok(Err(why)) => tried.push((socket.clone(), why)),
            Err(_) => tried.push((socket.clone(), "it does not answer".to_owned())),
        }
    }
    Err(NoEngine { tried })
}

impl Engine {
    async fn at(socket: &Path) -> Result<Engine, String> {
        UnixStream::connect(socket).await.map_err(|error| describe_connect_error(&error))?;
        let docker = connect(socket, API_DEFAULT_VERSION).map_err(|error| error.to_string())?;
        let docker = docker.negotiate_version().await.map_err(|error| error.to_string())?;
        let version = docker.version().await.map_err(|error| error.to_string())?;
        let is_podman =
            version.components.iter().flatten().any(|component| component.name.to_ascii_lowercase().contains("podman"));
        let name = if is_podman { "Podman" } else { "Docker" };
        let name = format!("{name} {}", version.version.unwrap_or_default());
        Ok(Engine { docker, socket: socket.to_owned(), name: name.trim_end().to_owned() })
    }

    /// Negotiated API version: `1.41`.
    pub fn version(&self) -> String {
        self.docker.client_version().to_string()
    }
}

/// API client for the socket and API version.
pub fn connect(socket: &Path, version: &ClientVersion) -> Result<Docker, bollard::errors::Error> {
    Docker::connect_with_unix(&socket.to_string_lossy(), REQUEST_TIMEOUT_S, version)
}

/// Parses [`Engine::version`].
pub fn parse_version(text: &str) -> Option<ClientVersion> {
    let (major, minor) = text.split_once('.')?;
    Some(ClientVersion { major_version: major.parse().ok()?, minor_version: minor.parse().ok()? })
}

fn describe_connect_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied: add this user to the engine's group, often 'docker', and restart Corro".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_sockets_follow_the_engines_own_defaults() {
        let check = |host: Option<&str>, runtime: Option<&str>, expected: &[&str]| {
            let variable = |name: &str| match name {
                "DOCKER_HOST" => host.map(str::to_owned),
                "XDG_RUNTIME_DIR" => runtime.map(str::to_owned),
                _ => None,
            };
            assert_eq!(sockets(variable), expected.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"];
        check(None, None, &usual);
        check(Some(""), Some(""), &usual);
        let own = ["/run/user/5/docker.sock", "/run/user/5/podman/podman.sock"];
        check(None, Some("/run/user/5"), &[usual, own].concat());
        check(Some("unix:///tmp/d.sock"), Some("/run/user/5"), &["/tmp/d.sock"]);
        check(Some("tcp://10.0.0.1:2375"), None, &[]);
    }

    #[tokio::test]
    async fn each_socket_has_its_own_error() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let dead = base.path().join("dead");
        drop(std::os::unix::net::UnixListener::bind(&dead).expect("a socket"));
        let why = find(&[base.path().join("none"), dead]).await.expect_err("there is none").to_string();
        assert!(why.contains("none: no such socket; ") && why.contains("dead: connection refused"), "{why}");
        assert!(find(&[]).await.expect_err("there is none").to_string().contains("DOCKER_HOST"));
    }
}
