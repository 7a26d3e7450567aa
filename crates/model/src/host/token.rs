//! Join tokens of hosts: their encoding, requests for one, and the list of stored tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::{Secret, Timestamp};

/// A join token: server URL, fingerprint of the CA and a secret, encoded as one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    #[serde(rename = "u")]
    pub server: String,
    /// SHA-256 of the server's CA certificate; without it, the machine's own trust store decides.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    #[serde(rename = "s")]
    pub secret: Secret,
}

/// Prefix that identifies a join token.
const TOKEN_PREFIX: &str = "corro-join-";

impl JoinToken {
    pub fn encode(&self) -> Secret {
        let text = serde_json::to_vec(self).expect("a token is plain data");
        Secret::new(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(text)))
    }

    /// Decodes a token; `None` when the text is no token or is truncated.
    pub fn decode(text: &str) -> Option<JoinToken> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(TOKEN_PREFIX)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Parameters of a new join token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostTokenParameters {
    /// Validity in seconds from now; a day by default.
    pub ttl_seconds: Option<u64>,
    /// URL at which the machine reaches the server; the server's own URL by default.
    pub server: Option<String>,
}

impl HostTokenParameters {
    pub const DEFAULT_TTL_SECONDS: u64 = 24 * 3600;
    pub const MIN_TTL_SECONDS: u64 = 1;
    pub const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
}

/// A new token. It is returned only in this response.
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

/// A stored token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostToken {
    pub id: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub expired: bool,
    /// Number of hosts that joined with it.
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
