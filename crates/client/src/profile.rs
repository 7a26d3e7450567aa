//! Server address and login of the command line: `profile.json` in the configuration directory, written by `corro up`.
//! It holds a secret: mode 0600, replaced atomically, never printed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use corro_base::atomic_file;
use corro_model::Secret;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Trust, TrustError};

const FILE_NAME: &str = "profile.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// `http://127.0.0.1:8470`, without a trailing slash.
    pub server: String,
    pub subscription: String,
    pub tenant: String,
    pub client_id: String,
    pub client_secret: Secret,
    /// Certificate authority of the server (PEM); without it, the system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// Data directory of a server on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<String>,
}

#[derive(Debug, Error)]
pub enum ProfileError {
    #[error("No Corro server is configured: {} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a valid profile", path.display())]
    Invalid { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot find the configuration directory, as there is no home directory: set CORRO_CONFIG_DIR")]
    NoHome,
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl Profile {
    /// Reads the profile in `config_dir`. `CORRO_SERVER` overrides its address, `CORRO_CA` (a file) its certificate
    /// authority.
    pub fn load(config_dir: &Path) -> Result<Profile, ProfileError> {
        let mut profile = Profile::read(config_dir)?;
        if let Some(server) = std::env::var("CORRO_SERVER").ok().filter(|server| !server.is_empty()) {
            if server.trim_end_matches('/') != profile.server.trim_end_matches('/') {
                profile.data_directory = None;
            }
            profile.server = server;
        }
        if let Some(file) = std::env::var_os("CORRO_CA").filter(|file| !file.is_empty())
            && let Trust::Pem(text) = Trust::from_file(Path::new(&file))?
        {
            profile.certificate_authority = Some(text);
        }
        profile.server.truncate(profile.server.trim_end_matches('/').len());
        Ok(profile)
    }

    /// Profile as stored in `config_dir`, without overrides from the environment.
    pub fn read(config_dir: &Path) -> Result<Profile, ProfileError> {
        let path = path_in(config_dir);
        let text = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ProfileError::Missing { path: path.clone() },
            _ => ProfileError::Read { path: path.clone(), source },
        })?;
        serde_json::from_slice(&text).map_err(|source| ProfileError::Invalid { path, source })
    }

    /// Certificates that the profile trusts.
    pub fn trust(&self) -> Trust {
        self.certificate_authority.clone().map_or(Trust::System, Trust::Pem)
    }

    /// Writes the profile atomically, readable only by its owner.
    pub fn save(&self, config_dir: &Path) -> Result<PathBuf, ProfileError> {
        let path = path_in(config_dir);
        let fail = |source: io::Error| ProfileError::Write { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(config_dir).map_err(fail)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| fail(error.into()))?;
        text.push(b'\n');
        atomic_file::replace(&path, &text, 0o600).map_err(fail)?;
        Ok(path)
    }
}

/// Path of the profile in `config_dir`.
pub fn path_in(config_dir: &Path) -> PathBuf {
    config_dir.join(FILE_NAME)
}

/// `$CORRO_CONFIG_DIR`, or `~/.corro`.
pub fn config_dir() -> Result<PathBuf, ProfileError> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("CORRO_CONFIG_DIR").or_else(|| from("HOME").map(|home| home.join(".corro"))).ok_or(ProfileError::NoHome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn profile() -> Profile {
        Profile {
            server: "http://127.0.0.1:8470".into(),
            subscription: "s".into(),
            tenant: "t".into(),
            client_id: "c".into(),
            client_secret: Secret::new("hush"),
            certificate_authority: None,
            data_directory: None,
        }
    }

    #[test]
    fn is_saved_for_its_owner_alone_and_read_back() {
        let dir = tempfile::tempdir().expect("temp dir");
        let config = dir.path().join("deep/corro");
        for server in ["http://127.0.0.1:1", "http://127.0.0.1:2/"] {
            let saved = Profile { server: server.into(), ..profile() };
            let path = saved.save(&config).expect("saved");
            let mode = |path: &Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(&config)), (0o600, 0o700));
            let loaded = Profile::load(&config).expect("loaded");
            assert_eq!(loaded, Profile { server: server.trim_end_matches('/').into(), ..profile() });
        }
        assert_eq!(fs::read_dir(&config).expect("listed").count(), 1, "no draft is left");
    }

    #[test]
    fn the_file_has_the_agreed_names() {
        let json = serde_json::to_value(profile()).expect("JSON");
        let names: Vec<&String> = json.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["clientId", "clientSecret", "server", "subscription", "tenant"]);
    }

    #[test]
    fn a_missing_or_broken_one_says_so() {
        let dir = tempfile::tempdir().expect("temp dir");
        let error = Profile::load(dir.path()).expect_err("missing");
        assert!(error.to_string().starts_with("No Corro server is configured"), "{error}");
        fs::write(dir.path().join(FILE_NAME), "{").expect("written");
        assert!(matches!(Profile::load(dir.path()), Err(ProfileError::Invalid { .. })));
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", profile()).contains("hush"));
    }
}
