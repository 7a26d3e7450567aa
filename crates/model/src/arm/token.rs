//! Tokens by OAuth2 client credentials on endpoints in the shape of the retired directory's, and the status of
//! long-running operations. Where those endpoints lie is said here, once.

use serde::{Deserialize, Serialize};

use crate::error::ErrorBody;
use crate::{Secret, Timestamp};

/// Where our own client fetches tokens: `POST`, form-encoded. Public, since the secret is in the body.
pub const TOKEN_PATH: &str = "/adfs/oauth2/token";
/// Where the clients' managed identity asks. What they would show on a virtual machine, nothing, is not enough here.
pub const IDENTITY_PATH: &str = "/oauth2/token";
/// What this cloud's other addresses are; public.
pub const METADATA_PATH: &str = "/metadata/endpoints";

/// One of the addresses below an authority, which is `/adfs`, `/common` or a tenant's id. The second form of each, under
/// `v2.0`, is what later clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEndpoint {
    Token {
        v2: bool,
    },
    DeviceCode,
    Authorize,
    OpenIdConfiguration {
        v2: bool,
    },
    /// The keys that tokens are signed with.
    Keys,
    /// Is this authority to be trusted?
    InstanceDiscovery,
}

impl TokenEndpoint {
    /// The authority's name, and what is asked of it.
    pub fn parse(path: &str) -> Option<(&str, TokenEndpoint)> {
        let (authority, rest) = path.strip_prefix('/')?.split_once('/')?;
        let rest = rest.trim_end_matches('/').to_ascii_lowercase();
        let endpoint = match rest.as_str() {
            "oauth2/token" => TokenEndpoint::Token { v2: false },
            "oauth2/v2.0/token" => TokenEndpoint::Token { v2: true },
            "oauth2/devicecode" | "oauth2/v2.0/devicecode" => TokenEndpoint::DeviceCode,
            "oauth2/authorize" | "oauth2/v2.0/authorize" => TokenEndpoint::Authorize,
            ".well-known/openid-configuration" => TokenEndpoint::OpenIdConfiguration { v2: false },
            "v2.0/.well-known/openid-configuration" => TokenEndpoint::OpenIdConfiguration { v2: true },
            "discovery/keys" | "discovery/v2.0/keys" => TokenEndpoint::Keys,
            "discovery/instance" => TokenEndpoint::InstanceDiscovery,
            _ => return None,
        };
        Some((authority, endpoint))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenResponse {
    pub token_type: String,
    /// Seconds, as text: that is how the directory wrote it.
    pub expires_in: String,
    pub expires_on: String,
    pub not_before: String,
    pub resource: String,
    pub access_token: Secret,
}

/// The later endpoint's form of the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenResponseV2 {
    pub token_type: String,
    pub expires_in: i64,
    pub ext_expires_in: i64,
    pub access_token: Secret,
}

/// Why there is no token, in the directory's form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenError {
    pub error: String,
    /// The first line is for people; the ids follow.
    pub error_description: String,
    #[serde(default)]
    pub error_codes: Vec<u32>,
    #[serde(default)]
    pub timestamp: String,
    #[serde(default)]
    pub trace_id: String,
    #[serde(default)]
    pub correlation_id: String,
}

/// The answer behind an `Azure-AsyncOperation` URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AsyncOperation {
    pub id: String,
    pub name: String,
    pub status: AsyncStatus,
    pub start_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<AsyncProperties>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AsyncStatus {
    InProgress,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AsyncProperties {
    /// The names from the subscription down, joined with `$`.
    pub resource_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_doors_are_told_from_their_paths() {
        let check = |path: &str, expected: Option<(&str, TokenEndpoint)>| {
            assert_eq!(TokenEndpoint::parse(path), expected, "{path}");
        };
        check(TOKEN_PATH, Some(("adfs", TokenEndpoint::Token { v2: false })));
        check("/a-b/oauth2/v2.0/token", Some(("a-b", TokenEndpoint::Token { v2: true })));
        check("/a-b/OAuth2/Token/", Some(("a-b", TokenEndpoint::Token { v2: false })));
        check("/common/discovery/instance", Some(("common", TokenEndpoint::InstanceDiscovery)));
        let document = TokenEndpoint::OpenIdConfiguration { v2: true };
        check("/t/v2.0/.well-known/openid-configuration", Some(("t", document)));
        for other in
            ["/", "/adfs", "/adfs/oauth2", "/adfs/oauth2/token/more", IDENTITY_PATH, METADATA_PATH, "/a//token"]
        {
            check(other, None);
        }
    }
}
