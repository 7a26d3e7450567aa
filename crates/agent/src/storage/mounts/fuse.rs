//! Volumes that lie on the server, for a node that does not see the server's directories: each is a mount process (`corro_mount`), which lives as
//! long as the agent holds its lifeline. One thread keeps each mount: it brings new passes before the old ones end, and mounts again when the
//! mount process was killed. A pass goes from the server's answer into a pipe, and nowhere else.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use corro_model::node::{NodeCredential, PASSES_PATH, Pass, PassRequest, bearer};
use corro_mount::process::{self, Served};
use corro_mount::settings::{Authority, Login, Settings};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::Deserialize;
use tokio::runtime::Handle;

use super::mount_processes::{EndBy, Lives};
use super::{MountError, mountinfo};
use crate::config::AgentConfig;
use crate::identity;
use crate::task_errors::chain;

/// The program that is running, also when its file was replaced since.
const THIS: &str = "/proc/self/exe";
/// How long programs wait for a server that is away: a job should outlive a restart of the server, also a slow one.
const DEADLINE: Duration = Duration::from_secs(600);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A server that restarts is waited for when something is to be mounted.
const SERVER_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The mounts of this node, by their places.
#[derive(Debug)]
pub struct Remotes {
    asker: Asker,
    pub lives: Lives,
}

/// Who asks the server for passes.
#[derive(Clone, Debug)]
struct Asker {
    config: Arc<AgentConfig>,
    credential: Arc<NodeCredential>,
    runtime: Handle,
}

impl Remotes {
    /// Within a runtime.
    pub fn new(config: Arc<AgentConfig>, credential: Arc<NodeCredential>) -> Remotes {
        let asker = Asker { config, credential, runtime: Handle::current() };
        Remotes { asker, lives: Lives::default() }
    }

    /// Returns when it is mounted. Blocks, and must not be called where others wait for the runtime.
    pub(super) fn mount(&self, wanted: &PassRequest, at: &Path, is_read_only: bool) -> Result<(), MountError> {
        let (asker, end_by) = (self.asker.clone(), self.lives.end_by());
        let keeper = Keeper { asker, wanted: wanted.clone(), at: at.to_owned(), is_read_only, end_by };
        let kept = keeper.begin(SERVER_WITHIN)?;
        let (open, closed) = mpsc::channel();
        let keeper = thread::Builder::new().name("mount".to_owned()).spawn(move || keeper.keep(kept, &closed));
        let keeper = keeper.map_err(MountError::Place)?;
        self.lives.hold(at, open, keeper);
        Ok(())
    }
}

struct Keeper {
    asker: Asker,
    wanted: PassRequest,
    at: PathBuf,
    is_read_only: bool,
    end_by: EndBy,
}

struct Kept {
    served: Served,
    /// When the next pass is asked for.
    renew: Instant,
}

impl Keeper {
    /// Jobs may run by now and have put links on the way to the mount point: nothing is mounted through one.
    fn begin(&self, patience: Duration) -> Result<Kept, MountError> {
        let place = openat2(CWD, &self.at, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        // A mount whose process was killed cannot be looked into, and is no link.
        if let Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) = place {
            return Err(MountError::Place(io::Error::other("a link or nothing is in its place")));
        }
        let (pass, config) = (self.asker.ask(&self.wanted, patience)?, &self.asker.config);
        let settings = Settings {
            endpoint: format!("{}/{}", config.present_server().trim_end_matches('/'), pass.account),
            account: pass.account,
            share: pass.share,
            inside: pass.directory,
            login: Login::Sas(pass.signature),
            authority: Authority::from(&config.trust),
            directory: self.at.clone(),
            read_only: self.is_read_only,
            // Ranks on several machines may write parts of one file.
            write_cache: false,
            file_mode: Settings::MODE,
            directory_mode: Settings::MODE,
            deadline_ms: DEADLINE.as_millis() as u64,
            request_s: None,
            lifeline: true,
        };
        let served = process::start(Path::new(THIS), &settings, Stdio::inherit());
        let served = served.map_err(|error| MountError::Remote { why: chain(&error) })?;
        if !mountinfo::is_mounted(&self.at).map_err(MountError::Place)? {
            self.end(served);
            return Err(MountError::Place(io::Error::other("it was mounted elsewhere, through a link in its place")));
        }
        Ok(Kept { served, renew: due(pass.lifetime_s) })
    }

    fn keep(&self, mut kept: Kept, closed: &mpsc::Receiver<()>) {
        let mut begin_again = Instant::now();
        while let Err(RecvTimeoutError::Timeout) = closed.recv_timeout(LOOK) {
            let at = self.at.display();
            if let Ok(Some(status)) = kept.served.child.try_wait() {
                if Instant::now() < begin_again {
                    continue;
                }
                begin_again = Instant::now() + TRY_AGAIN;
                tracing::error!(%status, "the mount process of {at} ended; programs that had files open there get errors");
                // Its watcher may have been killed with it.
                let _ = mountinfo::take_away(&self.at);
                match self.begin(Duration::ZERO) {
                    Ok(again) => kept = again,
                    Err(error) => tracing::warn!(error = chain(&error), "{at} cannot be mounted again yet"),
                }
            } else if Instant::now() >= kept.renew {
                kept.renew = match self.asker.ask(&self.wanted, Duration::ZERO) {
                    Ok(pass) => {
                        let _ = kept.served.renew(&Login::Sas(pass.signature));
                        due(pass.lifetime_s)
                    }
                    Err(error) => {
                        tracing::debug!(error = chain(&error), "there is no new pass for {at} yet");
                        Instant::now() + TRY_AGAIN
                    }
                };
            }
        }
        self.end(kept.served);
    }

    fn end(&self, mut served: Served) {
        if let Err(error) = mountinfo::take_away(&self.at) {
            tracing::warn!(%error, "{} cannot be unmounted", self.at.display());
        }
        drop(served.lifeline.take());
        self.end_by.wait_for(&mut served.child);
    }
}

/// A third of its life is left for a server that is away.
fn due(lifetime_s: u64) -> Instant {
    Instant::now() + Duration::from_secs(lifetime_s) * 2 / 3
}

#[derive(Deserialize)]
struct Refusal {
    error: Said,
}

#[derive(Deserialize)]
struct Said {
    message: String,
}

impl Asker {
    /// Asks until the server answers, for as long as `patience`.
    fn ask(&self, wanted: &PassRequest, patience: Duration) -> Result<Pass, MountError> {
        let failed = |why: String| MountError::Remote { why };
        let client = identity::client(&self.config, ANSWER_WITHIN).map_err(|error| failed(chain(&error)))?;
        let body = serde_json::to_vec(wanted).map_err(|error| failed(error.to_string()))?;
        let began = Instant::now();
        loop {
            let request = client.post(self.config.http_url(PASSES_PATH)).header("content-type", "application/json");
            let request = request.header("authorization", bearer(&self.credential)).body(body.clone());
            let answer = self.runtime.block_on(async {
                let answer = request.send().await?;
                let status = answer.status();
                Ok::<_, reqwest::Error>((status, answer.bytes().await?))
            });
            match answer {
                Ok((status, bytes)) if status.is_success() => {
                    return serde_json::from_slice(&bytes).map_err(|_| {
                        failed("the server's answer cannot be understood: is it of another version?".into())
                    });
                }
                Ok((status, bytes)) if !status.is_server_error() => {
                    let said = serde_json::from_slice::<Refusal>(&bytes).map(|refusal| refusal.error.message);
                    return Err(failed(said.unwrap_or_else(|_| format!("the server answered {status}"))));
                }
                Ok((status, _)) if began.elapsed() >= patience => {
                    return Err(failed(format!("the server answered {status}")));
                }
                Err(error) if began.elapsed() >= patience => {
                    return Err(failed(format!("the server does not answer: {}", chain(&error))));
                }
                _ => thread::sleep(LOOK),
            }
        }
    }
}
