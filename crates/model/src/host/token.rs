//! The token that lets a machine in: the word itself, how one is asked for, and what is told of those that are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::{Secret, Timestamp};

/// What a machine needs to join, in one word: where the server is, whose certificate is believed, and a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    #[serde(rename = "u")]
    pub server: String,
    /// SHA-256 of the authority that vouches for the server; without it, whom the machine trusts anyway.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    #[serde(rename = "s")]
    pub secret: Secret,
}

/// Tells a token from anything else that might be pasted in its place.
const TOKEN_MARK: &str = "corro-join-";

impl JoinToken {
    pub fn encode(&self) -> Secret {
        let text = serde_json::to_vec(self).expect("a token is plain data");
        Secret::new(format!("{TOKEN_MARK}{}", URL_SAFE_NO_PAD.encode(text)))
    }

    /// `None` when it is not one, or was cut off on its way.
    pub fn decode(text: &str) -> Option<JoinToken> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(TOKEN_MARK)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// How a new join token is to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostTokenParameters {
    /// From now; a day when absent.
    pub ttl_seconds: Option<u64>,
    /// At which URL the machine reaches the server; as the server calls itself when absent.
    pub server: Option<String>,
}

impl HostTokenParameters {
    pub const USUAL_SECONDS: u64 = 24 * 3600;
    pub const LEAST_SECONDS: u64 = 1;
    pub const MOST_SECONDS: u64 = 366 * 24 * 3600;
}

/// A new token. This is the only time it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostTokenCreated {
    pub id: String,
    pub token: Secret,
    pub server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    pub expires: Timestamp,
}

/// A token that is kept, without what makes it one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostToken {
    pub id: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub expired: bool,
    /// Hosts that joined with it.
    pub hosts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_that_carries_everything() {
        let token = JoinToken {
            server: "https://gpu-box:8470".to_owned(),
            ca_fingerprint: Some("ab".repeat(32)),
            secret: Secret::new("s3cret"),
        };
        let word = token.encode();
        assert!(word.expose().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_eq!(JoinToken::decode(&format!(" {}\n", word.expose())), Some(token));
        let cut = &word.expose()[..word.expose().len() - 9];
        for other in ["", "corro-join-", "corro-join-!!", "deadbeef", cut] {
            assert_eq!(JoinToken::decode(other), None, "{other}");
        }
    }
}
