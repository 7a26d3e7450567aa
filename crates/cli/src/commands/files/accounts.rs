//! Accounts of `corro files`: for each a key file, generated if missing, and a file with the connection string for clients. Both have mode 0600. Never
//! prints a key.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use corro_model::Secret;
use corro_model::names::{NameKind, check_name};
use corro_server::new_account_key;

use crate::error::CliError;
use crate::text_file::{read_optional, replace, write_error};

/// Subdirectory of the data directory.
const ACCOUNTS_DIR: &str = "accounts";

pub struct Accounts {
    dir: PathBuf,
    /// Keys in base64, by account.
    pub keys: BTreeMap<String, Vec<Secret>>,
}

impl Accounts {
    /// Opens the given accounts and those of earlier starts. `key_file` is the key file of the only given account.
    pub fn open(data: &Path, given: &[String], key_file: Option<&Path>) -> Result<Accounts, CliError> {
        let dir = data.join(ACCOUNTS_DIR);
        let failed = |error: std::io::Error| write_error(&dir, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let mut keys = BTreeMap::new();
        for name in given {
            check_name(NameKind::StorageAccount, name)?;
            let own = dir.join(format!("{name}.key"));
            keys.insert(name.clone(), read_or_create_keys(key_file.unwrap_or(&own))?);
        }
        for entry in fs::read_dir(&dir).map_err(failed)?.flatten() {
            let path = entry.path();
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".key")).unwrap_or_default();
            if check_name(NameKind::StorageAccount, name).is_ok() && !keys.contains_key(name) {
                keys.insert(name.to_owned(), read_or_create_keys(&path)?);
            }
        }
        match keys.is_empty() {
            true => Err(CliError::usage("there is no account to serve").hint("name one: --account myaccount")),
            false => Ok(Accounts { dir, keys }),
        }
    }

    /// Writes the connection strings for the server at `url` and returns their files, by account.
    pub fn write_connection_strings(&self, url: &str) -> Result<BTreeMap<&str, PathBuf>, CliError> {
        let mut files = BTreeMap::new();
        for name in self.keys.keys() {
            let path = self.dir.join(format!("{name}.connection"));
            let text = format!("{}\n", self.connection_string(name, url).expose());
            replace(&path, &text).map_err(|error| write_error(&path, &error))?;
            files.insert(name.as_str(), path);
        }
        Ok(files)
    }

    pub fn connection_string(&self, name: &str, url: &str) -> Secret {
        let key = self.keys.get(name).and_then(|keys| keys.first()).map_or("", Secret::expose);
        let protocol = url.split_once("://").map_or("http", |(protocol, _)| protocol);
        Secret::new(format!(
            "DefaultEndpointsProtocol={protocol};AccountName={name};AccountKey={key};FileEndpoint={url}/{name}"
        ))
    }
}

/// Reads the keys of a file, one per line. A missing file is created with two new keys.
fn read_or_create_keys(path: &Path) -> Result<Vec<Secret>, CliError> {
    let text = match read_optional(path)? {
        Some(text) => text,
        None => {
            let text = format!("{}\n{}\n", new_account_key().expose(), new_account_key().expose());
            replace(path, &text).map_err(|error| write_error(path, &error))?;
            text
        }
    };
    let keys: Vec<Secret> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Secret::new).collect();
    match keys.is_empty() {
        true => Err(CliError::new(format!("there is no key in {}", path.display()))
            .hint("write one in base64 there, or remove the file to generate new keys")),
        false => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_generated_once() {
        let dir = tempfile::tempdir().expect("a temp dir");
        assert!(Accounts::open(dir.path(), &[], None).is_err(), "nothing to serve");
        let first = Accounts::open(dir.path(), &["one".to_owned()], None).expect("made");
        assert_eq!(first.keys["one"].len(), 2);
        let second = Accounts::open(dir.path(), &["two".to_owned()], None).expect("made");
        assert_eq!(second.keys["one"], first.keys["one"]);
        assert_eq!(Accounts::open(dir.path(), &[], None).expect("kept").keys, second.keys);
        let files = second.write_connection_strings("http://127.0.0.1:1").expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&files["one"]), mode(&dir.path().join("accounts/one.key"))), (0o600, 0o600));
        let key = first.keys["one"][0].expose();
        let expected = format!(
            "DefaultEndpointsProtocol=http;AccountName=one;AccountKey={key};FileEndpoint=http://127.0.0.1:1/one\n"
        );
        assert_eq!(fs::read_to_string(&files["one"]).expect("there"), expected);
    }

    #[test]
    fn a_given_key_file_is_used() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = dir.path().join("key");
        fs::write(&file, "a2V5\n").expect("written");
        let open = || Accounts::open(dir.path(), &["one".to_owned()], Some(&file));
        assert_eq!(open().expect("read").keys["one"], [Secret::new("a2V5")]);
        assert!(!dir.path().join("accounts/one.key").exists());
        fs::write(&file, "\n").expect("written");
        assert!(open().is_err());
        assert!(Accounts::open(dir.path(), &["Bad_Name".to_owned()], None).is_err());
    }
}
