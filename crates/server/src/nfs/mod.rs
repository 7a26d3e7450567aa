//! NFS version 3 server for file servers. Each file server is a directory of this machine (`app::storage::exports`):
//! local jobs use the directory, other machines mount it over NFS.
//!
//! A call passes through `listener` (connections), `record` (bounded RPC records), `service` (RPC programs),
//! `procedures` (NFS) and `vfs` (files).
//!
//! NFS version 3 has no authentication: anybody who reaches the port and names an export may mount it. Therefore the
//! port is on loopback unless the operator chooses otherwise, an export path contains an unguessable secret
//! (`Exports::export_path`), exports are not listed, and handles carry a MAC (`tree`). Traffic is neither encrypted nor
//! signed, and all files belong to the server's user.

pub mod listener;
mod procedures;
pub mod record;
mod rpc;
pub mod service;
mod tree;
mod vfs;
mod xdr;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use corro_model::FileServerKey;
use corro_store::Store;
use tokio::sync::watch;

use self::listener::{NfsLimits, ReservedPort};
use self::service::Service;
use self::tree::FileTrees;
pub use self::vfs::Vfs;
use crate::app::App;
use crate::app::storage::exports::Exports;

/// Delay before another attempt to listen.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The NFS port: reserved at the start, listening while there is a file server.
pub struct NfsPort {
    app: App,
    reserved: ReservedPort,
}

impl NfsPort {
    /// Reserves the port. `remembered` is a file with the port of the last run, to which mounted clients reconnect.
    pub fn reserve(app: &App, listen: SocketAddr, remembered: &Path) -> anyhow::Result<Self> {
        ensure!(listen.is_ipv4(), "NFS is served on IPv4 addresses only, not on {listen}");
        let last = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse::<u16>().ok());
        let reserved = match last.filter(|_| listen.port() == 0) {
            // Another process may have taken it.
            Some(port) => {
                ReservedPort::bind(SocketAddr::new(listen.ip(), port)).or_else(|_| ReservedPort::bind(listen))
            }
            None => ReservedPort::bind(listen),
        };
        let reserved = reserved.with_context(|| format!("cannot serve NFS on {listen}"))?;
        if let Err(error) = std::fs::write(remembered, format!("{}\n", reserved.address.port())) {
            tracing::warn!(%error, "cannot save the NFS port for the next start");
        }
        app.storage.exports.set_address(reserved.address);
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
        let service = Arc::new(export_service(app.storage.exports.clone(), app.store.clone(), key, address.port()));
        let mut reserved = Some(reserved);
        loop {
            wait_for_file_servers(&app, true).await;
            let listener = match reserved.take().map_or_else(|| ReservedPort::bind(address), Ok) {
                Ok(reserved) => reserved.listen(),
                Err(error) => Err(error),
            };
            match listener {
                Ok(listener) => {
                    app.storage.exports.set_listening(true);
                    tokio::select! {
                        _ = listener::serve(listener, service.clone(), NfsLimits::DEFAULT) => {}
                        () = wait_for_file_servers(&app, false) => {}
                    }
                    app.storage.exports.set_listening(false);
                    reserved = ReservedPort::bind(address).ok();
                }
                Err(error) => {
                    tracing::error!(%error, %address, "cannot listen for NFS connections; retrying");
                    tokio::time::sleep(LISTEN_RETRY_DELAY).await;
                }
            }
        }
    }
}

/// NFS service for all file servers of `store`, whose directories are in `exports`. Handles stay valid as long as the
/// key is the same.
pub fn export_service(exports: Arc<Exports>, store: Store, key: [u8; 32], port: u16) -> Service<Vfs> {
    let generation = u64::from_le_bytes(key[..8].try_into().expect("eight bytes"));
    Service::new(Vfs(Arc::new(FileTrees::new(exports, store, key))), generation, port)
}

/// Waits until there is a file server (`wanted`), or none.
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

/// Removes the directories of deleted file servers, until the server stops.
pub async fn remove_deleted_file_servers(app: App, mut stopping: watch::Receiver<bool>) {
    let mut changes = app.store.changes();
    let mut known: Option<Vec<FileServerKey>> = None;
    loop {
        let living: Vec<FileServerKey> = app.snapshot().file_servers.keys().cloned().collect();
        let is_less = known.as_ref().is_none_or(|known| known.iter().any(|key| !living.contains(key)));
        known = Some(living);
        if is_less {
            let app = app.clone();
            let tidied =
                tokio::task::spawn_blocking(move || app.storage.exports.remove_orphans(|| app.snapshot())).await;
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
