//! Directories of file servers on this machine, and the secret paths under which they are exported over NFS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corro_model::FileServerKey;
/// Account whose shares are the directories of all file servers, in a root of their own.
use corro_model::names::FILE_SERVERS as ACCOUNT;
use corro_shares::{ShareError, Shares};
use corro_store::{FileServerRecord, State};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;

use crate::digest::hex;

/// Mount point that the Azure service reported; also the prefix of every export path.
pub const MOUNT_POINT: &str = "/data";

/// Directories of file servers and their export paths.
#[derive(Debug)]
pub struct Exports {
    shares: Arc<Shares>,
    key: [u8; 32],
    /// Address of the NFS port, once it is reserved.
    address: OnceLock<SocketAddr>,
    is_listening: watch::Sender<bool>,
}

impl Exports {
    /// Blocks on the disk.
    pub fn open(root: &Path, key: [u8; 32]) -> Result<Self, ShareError> {
        Ok(Exports {
            shares: Arc::new(Shares::open(root)?),
            key,
            address: OnceLock::new(),
            is_listening: watch::Sender::new(false),
        })
    }

    /// Name of the file server's directory, which is created if missing. Blocks on the disk.
    pub fn ensure_directory(&self, key: &FileServerKey, record: &FileServerRecord) -> Result<String, ShareError> {
        let name = self.directory_name(key, record);
        match self.shares.create_share(ACCOUNT, &name) {
            Ok(_) | Err(ShareError::ShareAlreadyExists(_)) => Ok(name),
            Err(error) => Err(error),
        }
    }

    /// Path of the file server's directory, which is created if missing. Blocks on the disk.
    pub fn directory(&self, key: &FileServerKey, record: &FileServerRecord) -> Result<PathBuf, ShareError> {
        self.shares.host_path(ACCOUNT, &self.ensure_directory(key, record)?)
    }

    /// The shares that hold the directories.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Address of the NFS port; `None` if NFS is off.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Records the address of the reserved port; the first call counts.
    pub fn set_address(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// Records whether the port accepts connections.
    pub fn set_listening(&self, is_listening: bool) {
        self.is_listening.send_replace(is_listening);
    }

    /// Waits until the port listens, which happens soon after the creation of a file server. Returns at once if NFS is
    /// off.
    pub async fn wait_until_listening(&self) {
        if self.address.get().is_some() {
            let mut listening = self.is_listening.subscribe();
            let _ = tokio::time::timeout(LISTENING_DEADLINE, listening.wait_for(|is| *is)).await;
        }
    }

    /// Path to mount the file server by. A secret: it is the only credential in NFS version 3.
    pub fn export_path(&self, key: &FileServerKey, record: &FileServerRecord) -> String {
        format!("{MOUNT_POINT}/{}", self.export_secret(&self.directory_name(key, record)))
    }

    /// File server whose export path contains this secret.
    pub fn find_by_secret(&self, state: &State, secret: &str) -> Option<(FileServerKey, Arc<FileServerRecord>)> {
        let mut living = state.file_servers.iter().filter(|(_, record)| !record.provisioning.is_deleting());
        let found = living
            .find(|(key, record)| constant_time_eq(&self.export_secret(&self.directory_name(key, record)), secret));
        found.map(|(key, record)| (key.clone(), record.clone()))
    }

    /// Removes the directories of deleted file servers. Blocks on the disk.
    pub fn remove_orphans(&self, state: impl FnOnce() -> Arc<State>) -> Result<(), ShareError> {
        // Directories first, then the state: a file server created in between is not in the list.
        let found = self.shares.list_shares(ACCOUNT)?;
        let state = state();
        let wanted: Vec<String> =
            state.file_servers.iter().map(|(key, record)| self.directory_name(key, record)).collect();
        for tree in found.iter().filter(|tree| !wanted.contains(&tree.name)) {
            let removed = self.shares.delete_share(ACCOUNT, &tree.name)?;
            if let Some(error) = removed.leftover {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(tree.name, error, "a file server left files behind; the next start removes them");
            }
        }
        Ok(())
    }

    /// Name of the directory: recognisable, and different for a file server that is created again under the same name.
    fn directory_name(&self, key: &FileServerKey, record: &FileServerRecord) -> String {
        let name = record.name.to_lowercase();
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).take(30).collect();
        let made = record.provisioning.creation_time.to_string();
        let digest = self.digest(&["directory", key.as_str(), &made]);
        format!("f{plain}-{}", &hex(&digest)[..16])
    }

    fn export_secret(&self, name: &str) -> String {
        hex(&self.digest(&["export", name])[..16])
    }

    fn digest(&self, parts: &[&str]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part.as_bytes());
            mac.update(&[0]);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Compares in constant time, so that timing does not reveal a matching prefix.
fn constant_time_eq(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Maximum wait for the port before a response that contains its address.
const LISTENING_DEADLINE: Duration = Duration::from_secs(5);
