//! The SSH host key of a node: created once, stored beside the node's credential, readable by its owner only. Blocks on
//! the disk.

use std::io;
use std::path::Path;

use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;

use crate::fs::json_file;

const HOST_KEY_FILE: &str = "host_key.json";

/// Loads the node's host key, creating an Ed25519 key the first time.
pub fn load_or_create(root: &Path) -> io::Result<PrivateKey> {
    let path = root.join(HOST_KEY_FILE);
    if let Some(text) = json_file::read::<String>(&path)? {
        return PrivateKey::from_openssh(text).map_err(io::Error::other);
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    let text = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    json_file::write(&path, &text.as_str())?;
    Ok(key)
}

/// Deletes the host key of a retired node.
pub fn forget(root: &Path) -> io::Result<()> {
    json_file::remove(&root.join(HOST_KEY_FILE))
}
