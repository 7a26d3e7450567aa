//! The administrator's login, stored in the data directory and encrypted with the master key, so that read access to
//! both restores a lost login. Used by programs that embed a server, never by the server itself.

use std::fs;
use std::io;
use std::path::Path;

use corro_base::atomic_file;
use corro_model::Secret;
use corro_store::data_dir::MASTER_KEY;
use corro_store::encryption::EncryptionError;
use corro_store::{Ciphertext, Vault};

const FILE: &str = "administrator";
const PURPOSE: &str = "administrator's login";

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("cannot open the data directory's master key")]
    Key(#[from] EncryptionError),
    #[error("the data directory's master key is missing: put it back")]
    KeyMissing,
    #[error("cannot write the administrator's login to the data directory")]
    Write(#[from] io::Error),
}

pub fn save(data: &Path, login: &Secret) -> Result<(), SaveError> {
    // The server has created the key; a new one would not decrypt the database.
    let vault = Vault::read(&data.join(MASTER_KEY))?.ok_or(SaveError::KeyMissing)?;
    let sealed = serde_json::to_vec(&vault.seal(PURPOSE, login.expose())).map_err(io::Error::from)?;
    // Another process may read at any time.
    Ok(atomic_file::replace(&data.join(FILE), &sealed, 0o600)?)
}

/// The stored login; `None` if it is missing or cannot be decrypted.
pub fn load(data: &Path) -> Option<Secret> {
    let sealed: Ciphertext = serde_json::from_slice(&fs::read(data.join(FILE)).ok()?).ok()?;
    let vault = Vault::read(&data.join(MASTER_KEY)).ok()??;
    vault.open_sealed(PURPOSE, &sealed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_encrypted_and_needs_its_key() {
        let dir = tempfile::tempdir().expect("a temp dir");
        assert_eq!(load(dir.path()), None);
        assert!(matches!(save(dir.path(), &Secret::new("hush")), Err(SaveError::KeyMissing)));
        Vault::open(&dir.path().join(MASTER_KEY)).expect("a key");
        for login in ["hush one", "hush two"] {
            save(dir.path(), &Secret::new(login)).expect("written");
            assert_eq!(load(dir.path()), Some(Secret::new(login)));
            let text = fs::read_to_string(dir.path().join(FILE)).expect("there");
            assert!(!text.contains("hush"), "{text}");
        }
        fs::remove_file(dir.path().join(MASTER_KEY)).expect("removed");
        assert_eq!(load(dir.path()), None);
        assert!(!dir.path().join(MASTER_KEY).exists(), "looking makes no key");
    }
}
