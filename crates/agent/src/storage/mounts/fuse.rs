//! FUSE mounts of volumes that are stored on the server, for nodes that cannot see the server's directories. Each is
//! process by a mount process (`corro_mount`), which ends when the agent closes its lifeline pipe. One supervisor thread
//! per mount renews the access token before it expires and mounts again if the mount process was killed. A token goes
//! from the server's response into a pipe and nowhere else.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use corro_base::error_chain;
use corro_base::procfs::SELF_EXE;
use corro_model::node::{MOUNT_TOKENS_PATH, MountToken, MountTokenRequest, NodeCredential, bearer};
use corro_mount::process::{self, MountProcess};
use corro_mount::settings::{Authority, Login, Settings};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::Deserialize;
use tokio::runtime::Handle;

use super::mount_processes::{EndDeadline, MountProcesses};
use super::{MountError, mountinfo};
use crate::config::AgentConfig;
use crate::identity;

/// The running program, even if its file was replaced.
/// How long file operations wait for an unreachable server. A job should survive a slow restart of the server.
const SERVER_AWAY_TIMEOUT: Duration = Duration::from_secs(600);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a new mount waits for an unreachable server.
const FIRST_MOUNT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The FUSE mounts of this node.
#[derive(Debug)]
pub struct FuseMounts {
    tokens: TokenClient,
    pub processes: MountProcesses,
}

/// Requests access tokens from the server.
#[derive(Clone, Debug)]
struct TokenClient {
    config: Arc<AgentConfig>,
    credential: Arc<NodeCredential>,
    runtime: Handle,
}

impl FuseMounts {
    /// Must be called within a Tokio runtime.
    pub fn new(config: Arc<AgentConfig>, credential: Arc<NodeCredential>) -> FuseMounts {
        let tokens = TokenClient { config, credential, runtime: Handle::current() };
        FuseMounts { tokens, processes: MountProcesses::default() }
    }

    /// Mounts and returns when the mount is ready. Blocks; must not be called on a thread of the runtime.
    pub(super) fn mount(&self, request: &MountTokenRequest, at: &Path, is_read_only: bool) -> Result<(), MountError> {
        let (tokens, deadline) = (self.tokens.clone(), self.processes.deadline());
        let supervisor =
            MountSupervisor { tokens, request: request.clone(), at: at.to_owned(), is_read_only, deadline };
        let mount = supervisor.start(FIRST_MOUNT_TIMEOUT)?;
        let (keep_alive, closed) = mpsc::channel();
        let supervisor = thread::Builder::new().name("mount".to_owned()).spawn(move || supervisor.run(mount, &closed));
        let supervisor = supervisor.map_err(MountError::MountPoint)?;
        self.processes.insert(at, keep_alive, supervisor);
        Ok(())
    }
}

struct MountSupervisor {
    tokens: TokenClient,
    request: MountTokenRequest,
    at: PathBuf,
    is_read_only: bool,
    deadline: EndDeadline,
}

struct ServedMount {
    process: MountProcess,
    /// When the next token is requested.
    renew_at: Instant,
}

impl MountSupervisor {
    /// Starts the mount process. Jobs may have put symlinks into the path of the mount point; nothing is mounted
    /// through one.
    fn start(&self, limit: Duration) -> Result<ServedMount, MountError> {
        let opened = openat2(CWD, &self.at, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        // A mount whose process was killed cannot be opened, but is no symlink.
        if let Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) = opened {
            return Err(MountError::MountPoint(io::Error::other(
                "the mount point is missing or was replaced by a symbolic link",
            )));
        }
        let (token, config) = (self.tokens.request_token(&self.request, limit)?, &self.tokens.config);
        let settings = Settings {
            endpoint: format!("{}/{}", config.present_server().trim_end_matches('/'), token.account),
            account: token.account,
            share: token.share,
            inside: token.directory,
            login: Login::Sas(token.signature),
            authority: Authority::from(&config.trust),
            directory: self.at.clone(),
            read_only: self.is_read_only,
            // Ranks on several machines may write parts of one file.
            write_cache: false,
            file_mode: Settings::DEFAULT_MODE,
            directory_mode: Settings::DEFAULT_MODE,
            deadline_ms: SERVER_AWAY_TIMEOUT.as_millis() as u64,
            request_s: None,
            lifeline: true,
        };
        let process = process::start(Path::new(SELF_EXE), &settings, Stdio::inherit());
        let process = process.map_err(|error| MountError::Remote { why: error_chain::join(&error) })?;
        if !mountinfo::is_mounted(&self.at).map_err(MountError::MountPoint)? {
            self.end(process);
            return Err(MountError::MountPoint(io::Error::other(
                "the mount point was replaced by a symbolic link while mounting",
            )));
        }
        Ok(ServedMount { process, renew_at: renewal_time(token.lifetime_s) })
    }

    fn run(&self, mut mount: ServedMount, closed: &mpsc::Receiver<()>) {
        let mut next_start = Instant::now();
        while let Err(RecvTimeoutError::Timeout) = closed.recv_timeout(POLL_INTERVAL) {
            let at = self.at.display();
            if let Ok(Some(status)) = mount.process.child.try_wait() {
                if Instant::now() < next_start {
                    continue;
                }
                next_start = Instant::now() + RETRY_INTERVAL;
                tracing::error!(%status, "the mount process of {at} ended; programs that had files open there get errors");
                // Its unmount watchdog may have been killed with it.
                let _ = mountinfo::unmount_layers(&self.at);
                match self.start(Duration::ZERO) {
                    Ok(again) => mount = again,
                    Err(error) => tracing::warn!(error = error_chain::join(&error), "{at} cannot be mounted again yet"),
                }
            } else if Instant::now() >= mount.renew_at {
                mount.renew_at = match self.tokens.request_token(&self.request, Duration::ZERO) {
                    Ok(token) => {
                        let _ = mount.process.renew(&Login::Sas(token.signature));
                        renewal_time(token.lifetime_s)
                    }
                    Err(error) => {
                        tracing::debug!(
                            error = error_chain::join(&error),
                            "cannot renew the access token for {at} yet"
                        );
                        Instant::now() + RETRY_INTERVAL
                    }
                };
            }
        }
        self.end(mount.process);
    }

    fn end(&self, mut process: MountProcess) {
        if let Err(error) = mountinfo::unmount_layers(&self.at) {
            tracing::warn!(%error, "{} cannot be unmounted", self.at.display());
        }
        drop(process.lifeline.take());
        self.deadline.wait_for(&mut process.child);
    }
}

/// Renewal after two thirds of the lifetime leaves time for an unreachable server.
fn renewal_time(lifetime_s: u64) -> Instant {
    Instant::now() + Duration::from_secs(lifetime_s) * 2 / 3
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

impl TokenClient {
    /// Requests a token; retries for at most `limit`.
    fn request_token(&self, request: &MountTokenRequest, limit: Duration) -> Result<MountToken, MountError> {
        let failed = |why: String| MountError::Remote { why };
        let client =
            identity::client(&self.config, REQUEST_TIMEOUT).map_err(|error| failed(error_chain::join(&error)))?;
        let body = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
        let began = Instant::now();
        loop {
            let request =
                client.post(self.config.http_url(MOUNT_TOKENS_PATH)).header("content-type", "application/json");
            let request = request.header("authorization", bearer(&self.credential)).body(body.clone());
            let answer = self.runtime.block_on(async {
                let answer = request.send().await?;
                let status = answer.status();
                Ok::<_, reqwest::Error>((status, answer.bytes().await?))
            });
            match answer {
                Ok((status, bytes)) if status.is_success() => {
                    return serde_json::from_slice(&bytes)
                        .map_err(|_| failed("the server's response is invalid: does it have another version?".into()));
                }
                Ok((status, bytes)) if !status.is_server_error() => {
                    let message = serde_json::from_slice::<ErrorBody>(&bytes).map(|refusal| refusal.error.message);
                    return Err(failed(message.unwrap_or_else(|_| format!("the server answered {status}"))));
                }
                Ok((status, _)) if began.elapsed() >= limit => {
                    return Err(failed(format!("the server answered {status}")));
                }
                Err(error) if began.elapsed() >= limit => {
                    return Err(failed(format!("the server does not answer: {}", error_chain::join(&error))));
                }
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }
}
