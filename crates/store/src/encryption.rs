//! Encryption of secrets at rest: ChaCha20-Poly1305 with a master key in a file of mode 0600 beside the database. The
//! purpose is authenticated, so a value encrypted for one purpose cannot be decrypted for another.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use corro_base::atomic_file;
use corro_model::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Nonce and ciphertext, base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ciphertext(String);

#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    #[error("cannot read or create the master key file")]
    KeyFile(#[source] std::io::Error),
    #[error("the master key file does not contain a key of 32 bytes")]
    KeySize,
    #[error("a stored secret cannot be decrypted with this installation's master key")]
    Open,
}

const NONCE_BYTES: usize = 12;

/// Cipher with the master key.
pub struct Vault {
    cipher: ChaCha20Poly1305,
}

impl Vault {
    /// Reads the master key or creates one. A server's start uses [`Vault::create_pending`] instead.
    pub fn open(path: &Path) -> Result<Self, EncryptionError> {
        if let Some(vault) = Self::read(path)? {
            return Ok(vault);
        }
        let vault = Self::create_pending(path)?;
        Self::activate_pending(path)?;
        Ok(vault)
    }

    /// Reads the master key; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, EncryptionError> {
        match std::fs::read(path) {
            Ok(key) => Self::with_key(&key).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EncryptionError::KeyFile(error)),
        }
    }

    pub fn with_key(key: &[u8]) -> Result<Self, EncryptionError> {
        let key: [u8; 32] = key.try_into().map_err(|_| EncryptionError::KeySize)?;
        Ok(Self { cipher: ChaCha20Poly1305::new(&Key::from(key)) })
    }

    /// Writes a new key under a temporary name. [`Vault::activate_pending`] renames it once the database holds a value
    /// encrypted with it. An existing key therefore implies an existing database.
    pub fn create_pending(path: &Path) -> Result<Self, EncryptionError> {
        let key = random::<32>();
        let write = || {
            let draft = pending_key_path(path);
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
            file.write_all(&key)?;
            file.sync_all()
        };
        write().map_err(EncryptionError::KeyFile)?;
        Self::with_key(&key)
    }

    /// Pending key of a start that was interrupted, if there is one.
    pub fn read_pending(path: &Path) -> Result<Option<Self>, EncryptionError> {
        Self::read(&pending_key_path(path))
    }

    pub fn activate_pending(path: &Path) -> Result<(), EncryptionError> {
        let kept = std::fs::rename(pending_key_path(path), path).and_then(|()| atomic_file::sync_parent(path));
        kept.map_err(EncryptionError::KeyFile)
    }

    pub fn seal(&self, purpose: &str, secret: &str) -> Ciphertext {
        let nonce = random::<NONCE_BYTES>();
        let payload = Payload { msg: secret.as_bytes(), aad: purpose.as_bytes() };
        let text = self.cipher.encrypt(&Nonce::from(nonce), payload).expect("encryption to memory cannot fail");
        Ciphertext(STANDARD.encode([&nonce[..], &text].concat()))
    }

    pub fn open_sealed(&self, purpose: &str, sealed: &Ciphertext) -> Result<Secret, EncryptionError> {
        let bytes = STANDARD.decode(&sealed.0).map_err(|_| EncryptionError::Open)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_BYTES).ok_or(EncryptionError::Open)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| EncryptionError::Open)?;
        let payload = Payload { msg: text, aad: purpose.as_bytes() };
        let plain = self.cipher.decrypt(&Nonce::from(nonce), payload).map_err(|_| EncryptionError::Open)?;
        String::from_utf8(plain).map(Secret::new).map_err(|_| EncryptionError::Open)
    }
}

fn pending_key_path(path: &Path) -> PathBuf {
    path.with_extension("draft")
}

/// Cryptographically random bytes.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// SHA-256 digest of a random secret of full length; such secrets need no salt.
pub fn digest(secret: &str) -> String {
    STANDARD.encode(Sha256::digest(secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_only_for_its_purpose_and_with_its_key() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let vault = Vault::open(&dir.path().join("a.key")).expect("a new key");
        let sealed = vault.seal("account x", "hunter2");
        assert_eq!(vault.open_sealed("account x", &sealed).expect("opens").expose(), "hunter2");
        assert!(vault.open_sealed("account y", &sealed).is_err());
        let again = Vault::open(&dir.path().join("a.key")).expect("the same key");
        assert!(again.open_sealed("account x", &sealed).is_ok());
        let other = Vault::open(&dir.path().join("b.key")).expect("another key");
        assert!(other.open_sealed("account x", &sealed).is_err());
        assert!(!format!("{sealed:?}").contains("hunter2"));
    }
}
