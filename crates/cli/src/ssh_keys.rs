//! The administrator's SSH key for cluster nodes: finds, validates or generates it. Never overwrites a key, and reads a private key only to derive a
//! missing public key.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use getrandom::SysRng;
use russh::keys::ssh_key::private::{KeypairData, RsaKeypair};
use russh::keys::ssh_key::rand_core::UnwrapErr;
use russh::keys::ssh_key::{self, Algorithm, LineEnding, PrivateKey, PublicKey};
use thiserror::Error;

/// Key size of `az`.
const RSA_BITS: usize = 2048;

#[derive(Debug, Error)]
pub enum SshKeyError {
    #[error("Incorrect ssh public key value.")]
    IncorrectPublicKey,
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the private key {} cannot be read, and its public key is missing", path.display())]
    UnreadablePrivateKey { path: PathBuf, source: ssh_key::Error },
    #[error("cannot generate an SSH key")]
    Generate(#[source] ssh_key::Error),
}

/// The public key, and whether the pair was generated just now.
#[derive(Debug)]
pub struct AdminKey {
    pub public_key: String,
    pub generated: bool,
}

/// Value of `--ssh-key`: the key itself, or the path of its file. Only `ssh-rsa` is accepted, as the service did.
pub fn public_key(value_or_path: &str) -> Result<String, SshKeyError> {
    let path = Path::new(value_or_path);
    let text = match path.is_file() {
        true => fs::read_to_string(path).map_err(|source| SshKeyError::Read { path: path.to_owned(), source })?,
        false => value_or_path.to_owned(),
    };
    validate(&text)
}

/// The default key `~/.ssh/id_rsa.pub`, if it exists.
pub fn default_public_key(ssh_dir: &Path) -> Result<Option<String>, SshKeyError> {
    let path = ssh_dir.join("id_rsa.pub");
    match fs::read_to_string(&path) {
        Ok(text) => validate(&text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SshKeyError::Read { path, source }),
    }
}

/// `--generate-ssh-keys`: the pair `id_rsa`, `id_rsa.pub` in `ssh_dir`, generated if missing. `comment` is `user@host`.
pub fn ensure_key_pair(ssh_dir: &Path, comment: &str) -> Result<AdminKey, SshKeyError> {
    if let Some(public_key) = default_public_key(ssh_dir)? {
        return Ok(AdminKey { public_key, generated: false });
    }
    let private_path = ssh_dir.join("id_rsa");
    let mut generated = false;
    if !private_path.exists() {
        let private = generate(comment)?.to_openssh(LineEnding::LF).map_err(SshKeyError::Generate)?;
        create_private_directory(ssh_dir)?;
        // Of two commands that generate a pair at the same time, the slower one uses the pair of the other.
        generated = create_file(&private_path, private.as_bytes(), 0o600)?;
    }
    let public_key = read_private_key(&private_path)?.public_key().to_openssh().map_err(SshKeyError::Generate)?;
    let public_key = validate(&public_key)?;
    create_file(&ssh_dir.join("id_rsa.pub"), format!("{public_key}\n").as_bytes(), 0o644)?;
    Ok(AdminKey { public_key, generated })
}

fn validate(text: &str) -> Result<String, SshKeyError> {
    let text = text.trim();
    match PublicKey::from_openssh(text).map(|key| key.algorithm()) {
        Ok(Algorithm::Rsa { .. }) => Ok(text.to_owned()),
        _ => Err(SshKeyError::IncorrectPublicKey),
    }
}

fn generate(comment: &str) -> Result<PrivateKey, SshKeyError> {
    let pair = RsaKeypair::random(&mut UnwrapErr(SysRng), RSA_BITS).map_err(SshKeyError::Generate)?;
    PrivateKey::new(KeypairData::from(pair), comment).map_err(SshKeyError::Generate)
}

fn read_private_key(path: &Path) -> Result<PrivateKey, SshKeyError> {
    let text = fs::read(path).map_err(|source| SshKeyError::Read { path: path.to_owned(), source })?;
    PrivateKey::from_openssh(text).map_err(|source| SshKeyError::UnreadablePrivateKey { path: path.to_owned(), source })
}

fn create_private_directory(path: &Path) -> Result<(), SshKeyError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| SshKeyError::Write { path: path.to_owned(), source })
}

/// Creates the file with its final mode and its whole content at once. `false` if there is one, which is never replaced.
fn create_file(path: &Path, content: &[u8], mode: u32) -> Result<bool, SshKeyError> {
    let create = || -> io::Result<bool> {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?; // regardless of the umask
        file.write_all(content)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.error),
        }
    };
    create().map_err(|source| SshKeyError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS me@here";

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_pair_is_generated_once() {
        let home = tempfile::tempdir().expect("temp dir");
        let ssh = home.path().join(".ssh");
        let first = ensure_key_pair(&ssh, "me@here").expect("made");
        assert!(first.generated);
        assert!(
            first.public_key.starts_with("ssh-rsa ") && first.public_key.ends_with(" me@here"),
            "{}",
            first.public_key
        );
        assert_eq!((mode(&ssh), mode(&ssh.join("id_rsa")), mode(&ssh.join("id_rsa.pub"))), (0o700, 0o600, 0o644));
        let private = fs::read_to_string(ssh.join("id_rsa")).expect("private key");
        assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));

        let again = ensure_key_pair(&ssh, "other@there").expect("found");
        assert_eq!((again.public_key.as_str(), again.generated), (first.public_key.as_str(), false));

        fs::remove_file(ssh.join("id_rsa.pub")).expect("removed");
        let derived = ensure_key_pair(&ssh, "other@there").expect("derived");
        assert_eq!((derived.public_key, derived.generated), (first.public_key.clone(), false));
        assert_eq!(fs::read_to_string(ssh.join("id_rsa")).expect("private key"), private, "never overwritten");

        assert_eq!(default_public_key(&ssh).expect("readable"), Some(first.public_key.clone()));
        let path = ssh.join("id_rsa.pub");
        assert_eq!(public_key(path.to_str().expect("UTF-8")).expect("a path"), first.public_key);
        assert_eq!(public_key(&format!(" {}\n", first.public_key)).expect("a value"), first.public_key);
    }

    #[test]
    fn commands_that_generate_a_pair_at_once_use_the_same() {
        let home = tempfile::tempdir().expect("temp dir");
        let ensure = || ensure_key_pair(home.path(), "me@here").expect("a pair");
        let [one, two] = std::thread::scope(|scope| {
            let threads = [scope.spawn(ensure), scope.spawn(ensure)];
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(one.public_key, two.public_key);
        assert_eq!(fs::read_dir(home.path()).expect("listed").count(), 2, "no draft is left");
    }

    #[test]
    fn other_keys_are_rejected_as_by_the_service() {
        for bad in ["", "ssh-rsa", "ssh-rsa AAAA", "hello", ED25519, "/nowhere/id_rsa.pub"] {
            assert!(matches!(public_key(bad), Err(SshKeyError::IncorrectPublicKey)), "{bad}");
        }
    }

    #[test]
    fn an_unreadable_private_key_is_left_alone() {
        let home = tempfile::tempdir().expect("temp dir");
        fs::write(home.path().join("id_rsa"), "-----BEGIN RSA PRIVATE KEY-----\n").expect("written");
        let error = ensure_key_pair(home.path(), "me@here").expect_err("unreadable");
        assert!(matches!(error, SshKeyError::UnreadablePrivateKey { .. }), "{error}");
        assert!(!home.path().join("id_rsa.pub").exists());
    }

    #[test]
    fn no_key_is_not_an_error() {
        let home = tempfile::tempdir().expect("temp dir");
        assert_eq!(default_public_key(home.path()).expect("nothing there"), None);
    }
}
