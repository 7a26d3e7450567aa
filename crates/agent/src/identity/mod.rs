//! Identity of the node: the lock that keeps a second agent out of its directory, and the credential that the server
//! issued for a join token. Never prints a token or a secret.

pub mod address;
pub mod incarnation;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::StatusCode;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

use corro_client::{Trust, TrustError, tls_error};
use corro_model::NodeId;
use corro_model::node::{JOIN_PATH, JoinRequest, NodeCredential, PROTOCOL, PROTOCOL_HEADER};

use crate::config::AgentConfig;
use crate::fs::json_file;

/// Time between two join requests while no cluster needs a node.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Errors of locking the node's directory and of joining.
#[derive(Debug, Error)]
pub enum IdentityError {
    #[error(
        "another agent runs in {}: stop it, or give this one a directory of its own with --data",
        root.display()
    )]
    InUse { root: PathBuf },
    #[error("cannot use {} as the node's directory", root.display())]
    Root { root: PathBuf, source: io::Error },
    #[error("cannot read or write the node's credential in {}", path.display())]
    Credential { path: PathBuf, source: io::Error },
    #[error("the node id '{node}' in the credential is not valid")]
    NodeId { node: String },
    #[error("cannot prepare requests to the server")]
    Client { source: reqwest::Error },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(
        "the certificate of the server at {server} is not trusted: give its authority with --ca FILE or --ca-fingerprint, as `corro server` shows"
    )]
    Untrusted { server: String, source: tokio_rustls::rustls::Error },
    #[error("the server refused the join token ({status}): ask its operator for a new one")]
    TokenRefused { status: StatusCode },
    #[error("{message}")]
    Version { message: String },
    #[error("the server's response to the join request is invalid: does it have another version?")]
    Answer { source: serde_json::Error },
}

/// Exclusive locks that an agent holds for its lifetime; the kernel releases them however the agent ends. One is on the
/// directory itself, which works even if the lock file was removed. The other is on the lock file, which contains the
/// agent's process id and which older versions check.
#[derive(Debug)]
pub struct RootLock {
    _directory: File,
    _file: File,
}

/// Creates the directory if needed and locks it.
pub fn lock(root: &Path) -> Result<RootLock, IdentityError> {
    let failed = |source| IdentityError::Root { root: root.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
    let taken = || IdentityError::InUse { root: root.to_owned() };
    let directory = File::open(root).map_err(failed)?;
    if !try_exclusive(&directory).map_err(failed)? {
        return Err(taken());
    }
    let path = root.join(LOCK_FILE);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    if !try_exclusive(&file).map_err(failed)? {
        return Err(taken());
    }
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(RootLock { _directory: directory, _file: file })
}

/// Takes the exclusive lock; `false` if another process has it. [`holder`] takes a shared lock for a moment, which is
/// waited for.
fn try_exclusive(file: &File) -> io::Result<bool> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if is_exclusively_locked(file) => return Ok(false),
            Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Tests by taking and releasing a shared lock.
fn is_exclusively_locked(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Err(errno) => errno == Errno::WOULDBLOCK,
        Ok(()) => {
            // A failure is harmless: closing the file releases the lock.
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
    }
}

/// Process id of the agent that runs the node in `root`; 0 if there is one whose id cannot be determined. The lock
/// proves that it is alive; the lock file or `/proc/locks` has its id.
pub fn holder(root: &Path) -> Option<u32> {
    let directory = File::open(root).ok()?;
    let file = File::open(root.join(LOCK_FILE)).ok();
    let has_directory = is_exclusively_locked(&directory);
    if !has_directory && !file.as_ref().is_some_and(is_exclusively_locked) {
        return None;
    }
    let mut text = String::new();
    let named = file.and_then(|mut file| file.read_to_string(&mut text).ok()).and_then(|_| text.trim().parse().ok());
    // An agent that has just taken the lock has not written its process id yet.
    named.or_else(|| locking_process(&directory)).or(Some(0))
}

/// Process id of the holder of the lock on `file` according to `/proc/locks`.
fn locking_process(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let lock_id = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // Format: "1: FLOCK  ADVISORY  WRITE 4515 fe:00:5416292 0 EOF". Waiting processes have "->" in the second column.
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mine = lines.find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&lock_id.as_str()))?;
    mine.get(4)?.parse().ok().filter(|pid| *pid > 0)
}

/// Loads the stored credential, or joins with the join token. Joining waits until the server answers and a cluster
/// needs a node.
pub async fn load_or_join(config: &AgentConfig) -> Result<NodeCredential, IdentityError> {
    let path = config.root.join(CREDENTIAL_FILE);
    let failed = |source| IdentityError::Credential { path: path.clone(), source };
    let credential = match json_file::read(&path).map_err(failed)? {
        Some(credential) => credential,
        None => {
            let credential = join(config).await?;
            json_file::write(&path, &credential).map_err(failed)?;
            credential
        }
    };
    match NodeId::parse(credential.node.as_str()) {
        Some(_) => Ok(credential),
        None => Err(IdentityError::NodeId { node: credential.node.to_string() }),
    }
}

/// Whether a stored credential makes a join token unnecessary.
pub fn has_joined(root: &Path) -> bool {
    root.join(CREDENTIAL_FILE).exists()
}

/// Deletes the credential: the next start joins as a new node.
pub fn forget(root: &Path) -> Result<(), IdentityError> {
    let path = root.join(CREDENTIAL_FILE);
    json_file::remove(&path).map_err(|source| IdentityError::Credential { path, source })
}

/// Lock file in the node's directory; contains the agent's process id.
pub(crate) const LOCK_FILE: &str = "lock";
const CREDENTIAL_FILE: &str = "credential.json";

/// HTTP client for requests to the server. Uses no proxy, like the WebSocket.
pub fn client(config: &AgentConfig, timeout: Duration) -> Result<reqwest::Client, IdentityError> {
    client_for(&config.present_server(), &config.trust, timeout)
}

/// Like [`client`], for any server URL and trust.
pub fn client_for(server: &str, trust: &Trust, timeout: Duration) -> Result<reqwest::Client, IdentityError> {
    let https = server.starts_with("https://");
    let trust = if https { trust.clone() } else { Trust::none() };
    let tls = trust.client_config()?;
    let client = reqwest::Client::builder().no_proxy().timeout(timeout).tls_backend_preconfigured(tls).build();
    client.map_err(|source| IdentityError::Client { source })
}

async fn join(config: &AgentConfig) -> Result<NodeCredential, IdentityError> {
    let client = client(config, REQUEST_TIMEOUT)?;
    let request = JoinRequest { token: config.join_token.clone() };
    let body = serde_json::to_vec(&request).map_err(|source| IdentityError::Answer { source })?;
    let mut reported = None;
    let mut report_once = |what: WaitReason, text: String| {
        if reported != Some(what) {
            // The reader of stderr may have closed it; a failed write must not end the node.
            let _ = writeln!(io::stderr(), "{text}");
            reported = Some(what);
        }
    };
    loop {
        let request = client.post(config.http_url(JOIN_PATH)).header("content-type", "application/json");
        let request = request.header(PROTOCOL_HEADER, PROTOCOL);
        let answer = match request.body(body.clone()).send().await {
            // A truncated response counts as no response.
            Ok(response) => {
                let status = response.status();
                response.bytes().await.map(|bytes| (status, bytes))
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok((StatusCode::OK | StatusCode::CREATED, bytes)) => {
                let credential: NodeCredential =
                    serde_json::from_slice(&bytes).map_err(|source| IdentityError::Answer { source })?;
                let _ = writeln!(io::stderr(), "joined as node {}", credential.node);
                return Ok(credential);
            }
            Ok((StatusCode::NO_CONTENT | StatusCode::ACCEPTED | StatusCode::CONFLICT, _)) => {
                report_once(WaitReason::Cluster, "waiting until a cluster needs a node".to_owned());
            }
            Ok((StatusCode::UPGRADE_REQUIRED, bytes)) => {
                return Err(IdentityError::Version { message: error_message(&bytes, StatusCode::UPGRADE_REQUIRED) });
            }
            Ok((status, _)) if status.is_client_error() => return Err(IdentityError::TokenRefused { status }),
            Ok((status, _)) => report_once(WaitReason::Server, format!("the server answered {status}: retrying")),
            Err(error) => {
                if let Some(source) = tls_error(&error) {
                    return Err(IdentityError::Untrusted { server: config.present_server(), source: source.clone() });
                }
                report_once(
                    WaitReason::Server,
                    format!("cannot reach {} yet ({error}): retrying", config.present_server()),
                );
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The error message in a server's JSON response, else its status.
pub(crate) fn error_message(body: &[u8], status: StatusCode) -> String {
    let body = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = body.and_then(|body| Some(body["error"]["message"].as_str()?.to_owned()));
    message.unwrap_or_else(|| format!("the server answered {status}"))
}

#[derive(Clone, Copy, PartialEq)]
enum WaitReason {
    Cluster,
    Server,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_per_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("new/node");
        let held = lock(&root).expect("nobody holds it");
        assert!(matches!(lock(&root), Err(IdentityError::InUse { .. })));
        assert_eq!(holder(&root), Some(std::process::id()));
        std::fs::remove_file(root.join(LOCK_FILE)).expect("removed");
        assert!(matches!(lock(&root), Err(IdentityError::InUse { .. })), "the directory itself is locked");
        assert_eq!(holder(&root), Some(std::process::id()), "the kernel names it");
        drop(held);
        assert_eq!(holder(&root), None);
        lock(&root).expect("it was let go");
    }
}
