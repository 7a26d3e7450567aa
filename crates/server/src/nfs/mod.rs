//! File servers: each is a directory of this machine, which jobs here see as it is and other machines mount over NFS
//! version 3. Entered by `orders` (where a file server lies), by `app::file_servers` (what it tells of it) and by
//! [`crate::Server`], which opens the port.
//!
//! A call passes `listener` (connections), `record` (bounded RPC records), `service` (RPC programs), `procedures` (NFS) and `vfs`
//! (files).
//!
//! NFS of this version knows no login: whoever reaches the port and names an export may have it. So the port is on the
//! loopback unless the operator says otherwise, an export's path holds a word that nobody can guess (`Exports::path`), no list of
//! exports is given out, and a handle that was not made here is refused (`tree`). What travels is neither encrypted nor
//! signed, and everybody is the server's own user.

pub mod listener;
mod procedures;
pub mod record;
mod rpc;
pub mod service;
mod tree;
mod vfs;
mod xdr;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use corro_model::FileServerKey;
/// All file servers' directories are trees of this account, in a root of their own.
use corro_model::names::FILE_SERVERS as ACCOUNT;
use corro_shares::{ShareError, Shares};
use corro_store::{FileServerRecord, State, Store};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;

use self::listener::{NfsLimits, ReservedPort};
use self::service::Service;
use self::tree::Trees;
pub use self::vfs::Vfs;
use crate::app::App;
use crate::app::instance::hex;

/// What the service reported; the beginning of the path of every export.
pub const MOUNT_POINT: &str = "/data";

/// Where file servers lie, and under which paths they are exported.
#[derive(Debug)]
pub struct Exports {
    shares: Arc<Shares>,
    key: [u8; 32],
    /// Where the port is, once it is reserved.
    door: OnceLock<SocketAddr>,
    is_listening: watch::Sender<bool>,
}

impl Exports {
    /// Blocks on the disk.
    pub fn open(root: &Path, key: [u8; 32]) -> Result<Self, ShareError> {
        Ok(Exports {
            shares: Arc::new(Shares::open(root)?),
            key,
            door: OnceLock::new(),
            is_listening: watch::Sender::new(false),
        })
    }

    /// The name of the file server's tree, which is made when it is first asked for. Blocks on the disk.
    pub fn tree(&self, key: &FileServerKey, record: &FileServerRecord) -> Result<String, ShareError> {
        let name = self.name(key, record);
        match self.shares.create_share(ACCOUNT, &name) {
            Ok(_) | Err(ShareError::ShareAlreadyExists(_)) => Ok(name),
            Err(error) => Err(error),
        }
    }

    /// Where that lies. Blocks on the disk.
    pub fn directory(&self, key: &FileServerKey, record: &FileServerRecord) -> Result<PathBuf, ShareError> {
        self.shares.host_path(ACCOUNT, &self.tree(key, record)?)
    }

    /// All of them.
    pub fn trees(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Where the port is, if there is one.
    pub fn door(&self) -> Option<SocketAddr> {
        self.door.get().copied()
    }

    /// Returns when the port listens, which it does soon after a file server was made; at once where there is no port.
    pub async fn wait_until_listening(&self) {
        if self.door.get().is_some() {
            let mut listening = self.is_listening.subscribe();
            let _ = tokio::time::timeout(LISTENING_DEADLINE, listening.wait_for(|is| *is)).await;
        }
    }

    /// The path that must be named to mount it. A secret: it is all that NFS asks for.
    pub fn path(&self, key: &FileServerKey, record: &FileServerRecord) -> String {
        format!("{MOUNT_POINT}/{}", self.word(&self.name(key, record)))
    }

    /// The file server whose path holds this word.
    fn find(&self, state: &State, word: &str) -> Option<(FileServerKey, Arc<FileServerRecord>)> {
        let mut living = state.file_servers.iter().filter(|(_, record)| !record.provisioning.is_deleting());
        let found = living.find(|(key, record)| same(&self.word(&self.name(key, record)), word));
        found.map(|(key, record)| (key.clone(), record.clone()))
    }

    /// Removes the directories of file servers that are no more. Blocks on the disk.
    fn tidy(&self, state: impl FnOnce() -> Arc<State>) -> Result<(), ShareError> {
        // In this order: one that is made meanwhile is not among those that were found.
        let found = self.shares.list_shares(ACCOUNT)?;
        let state = state();
        let wanted: Vec<String> = state.file_servers.iter().map(|(key, record)| self.name(key, record)).collect();
        for tree in found.iter().filter(|tree| !wanted.contains(&tree.name)) {
            let removed = self.shares.delete_share(ACCOUNT, &tree.name)?;
            if let Some(error) = removed.left_behind {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(tree.name, error, "a file server left files behind; the next start removes them");
            }
        }
        Ok(())
    }

    /// Of its directory: one that people can find, and another one when a file server is made again under its name.
    fn name(&self, key: &FileServerKey, record: &FileServerRecord) -> String {
        let name = record.name.to_lowercase();
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).take(30).collect();
        let made = record.provisioning.creation_time.to_string();
        let digest = self.digest(&["directory", key.as_str(), &made]);
        format!("f{plain}-{}", &hex(&digest)[..16])
    }

    fn word(&self, name: &str) -> String {
        hex(&self.digest(&["export", name])[..16])
    }

    fn digest(&self, words: &[&str]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        for word in words {
            mac.update(word.as_bytes());
            mac.update(&[0]);
        }
        mac.finalize().into_bytes().into()
    }
}

/// In a time that does not tell how much of it is right.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// For how long an answer that names the port waits for it.
const LISTENING_DEADLINE: Duration = Duration::from_secs(5);
/// Before a port that cannot be listened on is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The NFS port of a server: reserved from the start, open while there is a file server.
pub struct NfsPort {
    app: App,
    reserved: ReservedPort,
}

impl NfsPort {
    /// `remembered` is a file with the port of the last time: clients that have mounted come back to it.
    pub fn reserve(app: &App, listen: SocketAddr, remembered: &Path) -> anyhow::Result<Self> {
        ensure!(listen.is_ipv4(), "NFS is served on IPv4 addresses only, not on {listen}");
        let last = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse::<u16>().ok());
        let reserved = match last.filter(|_| listen.port() == 0) {
            // Another process may have it by now.
            Some(port) => {
                ReservedPort::bind(SocketAddr::new(listen.ip(), port)).or_else(|_| ReservedPort::bind(listen))
            }
            None => ReservedPort::bind(listen),
        };
        let reserved = reserved.with_context(|| format!("cannot serve NFS on {listen}"))?;
        if let Err(error) = std::fs::write(remembered, format!("{}\n", reserved.address.port())) {
            tracing::warn!(%error, "the NFS port cannot be remembered for the next start");
        }
        let _ = app.exports.door.set(reserved.address);
        Ok(NfsPort { app: app.clone(), reserved })
    }

    /// Listens whenever there is a file server, until the server stops.
    pub async fn serve(self, mut stopping: watch::Receiver<bool>) {
        tokio::select! {
            () = self.listen_while_needed() => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }

    async fn listen_while_needed(self) {
        let NfsPort { app, reserved } = self;
        let address = reserved.address;
        let key = app.keyed_digest("nfs handles", b"");
        let service = Arc::new(export_service(app.exports.clone(), app.store.clone(), key, address.port()));
        let mut reserved = Some(reserved);
        loop {
            wait_for_file_servers(&app, true).await;
            let listener = match reserved.take().map_or_else(|| ReservedPort::bind(address), Ok) {
                Ok(reserved) => reserved.listen(),
                Err(error) => Err(error),
            };
            match listener {
                Ok(listener) => {
                    app.exports.is_listening.send_replace(true);
                    tokio::select! {
                        _ = listener::serve(listener, service.clone(), NfsLimits::USUAL) => {}
                        () = wait_for_file_servers(&app, false) => {}
                    }
                    app.exports.is_listening.send_replace(false);
                    reserved = ReservedPort::bind(address).ok();
                }
                Err(error) => {
                    tracing::error!(%error, %address, "file servers cannot be exported over NFS; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Serves all file servers of `store`, which lie in `exports`. Handles stay valid as long as the key is the same.
pub fn export_service(exports: Arc<Exports>, store: Store, key: [u8; 32], port: u16) -> Service<Vfs> {
    let generation = u64::from_le_bytes(key[..8].try_into().expect("eight bytes"));
    Service::new(Vfs(Arc::new(Trees::of(exports, store, key))), generation, port)
}

/// Returns when there is one, or none.
async fn wait_for_file_servers(app: &App, wanted: bool) {
    let mut changes = app.store.changes();
    loop {
        let any = app.snapshot().file_servers.values().any(|record| !record.provisioning.is_deleting());
        if any == wanted {
            return;
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Removes what deleted file servers leave, until the server stops.
pub async fn keep_tidy(app: App, mut stopping: watch::Receiver<bool>) {
    let mut changes = app.store.changes();
    let mut known: Option<Vec<FileServerKey>> = None;
    loop {
        let living: Vec<FileServerKey> = app.snapshot().file_servers.keys().cloned().collect();
        let is_less = known.as_ref().is_none_or(|known| known.iter().any(|key| !living.contains(key)));
        known = Some(living);
        if is_less {
            let app = app.clone();
            let tidied = tokio::task::spawn_blocking(move || app.exports.tidy(|| app.snapshot())).await;
            if let Ok(Err(error)) = tidied {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the files of a deleted file server cannot be removed");
                known = None;
            }
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests;
