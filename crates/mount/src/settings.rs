//! Settings of a mount process. Passed over its standard input as one line of JSON, because they contain a secret that
//! must not be in an argument or a variable.

use std::path::PathBuf;
use std::time::Duration;

use corro_client::{ClientError, Credential, FileService, Fingerprint, Trust};
use corro_model::Secret;
use serde::{Deserialize, Serialize};

/// Everything a mount process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// `http://host:port/account` or `http://account.file.host:port`
    pub endpoint: String,
    pub account: String,
    pub share: String,
    /// Mounted directory of the share; empty for the whole share.
    #[serde(default)]
    pub inside: String,
    pub login: Login,
    pub authority: Authority,
    /// Mount point.
    pub directory: PathBuf,
    pub read_only: bool,
    /// FUSE writeback mode: the kernel caches writes.
    #[serde(default)]
    pub write_cache: bool,
    pub file_mode: u16,
    pub directory_mode: u16,
    /// How long programs wait for a server that does not answer.
    pub deadline_ms: u64,
    /// Time limit of one request before it is repeated.
    #[serde(default)]
    pub request_s: Option<u32>,
    /// Unmount when the standard input ends. Until then each line is a new [`Login`] that replaces the one before.
    pub lifeline: bool,
}

/// Credential for the file service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Login {
    Key(Secret),
    Sas(Secret),
}

/// Trusted certificate authorities.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Authority {
    System,
    Pem(String),
    Fingerprint(String),
}

impl From<&Trust> for Authority {
    fn from(trust: &Trust) -> Authority {
        match trust {
            Trust::System => Authority::System,
            Trust::Pem(text) => Authority::Pem(text.clone()),
            Trust::Fingerprint(fingerprint) => Authority::Fingerprint(fingerprint.to_string()),
        }
    }
}

impl From<Credential> for Login {
    fn from(credential: Credential) -> Login {
        match credential {
            Credential::Key(key) => Login::Key(key),
            Credential::Sas(sas) => Login::Sas(sas),
        }
    }
}

impl From<Login> for Credential {
    fn from(login: Login) -> Credential {
        match login {
            Login::Key(key) => Credential::Key(key),
            Login::Sas(sas) => Credential::Sas(sas),
        }
    }
}

impl Settings {
    /// Permissions of Batch AI's mounts on its nodes.
    pub const DEFAULT_MODE: u16 = 0o777;

    pub fn service(&self) -> Result<FileService, ClientError> {
        let credential = self.login.clone().into();
        let trust = match &self.authority {
            Authority::System => Trust::System,
            Authority::Pem(text) => Trust::Pem(text.clone()),
            Authority::Fingerprint(text) => Trust::Fingerprint(Fingerprint::parse(text)?),
        };
        let service = FileService::new(&self.endpoint, &self.account, credential)?.trusting(&trust)?;
        Ok(service.with_timeout(self.request_s))
    }

    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Source in the kernel's table of mounts. Contains no secret.
    pub fn source_name(&self) -> String {
        let host = self.endpoint.split_once("://").map_or(self.endpoint.as_str(), |(_, host)| host);
        format!("{}{}/{}", crate::mountinfo::SOURCE_PREFIX, host.trim_end_matches('/'), self.share)
    }

    /// Description of the share for messages.
    pub fn description(&self) -> String {
        let (share, account) = (&self.share, &self.account);
        format!("the share {share} of the account {account} at {}", self.endpoint.trim_end_matches('/'))
    }
}
