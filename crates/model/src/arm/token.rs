//! OAuth2 client-credentials tokens on endpoints that look like Azure Active Directory's, and the status of
//! long-running operations. Defines the paths of these endpoints.

use serde::{Deserialize, Serialize};

use crate::error::ErrorBody;
use crate::{Secret, Timestamp};

/// Token endpoint of our own client: `POST`, form-encoded. Public, since the secret is in the body.
pub const TOKEN_PATH: &str = "/adfs/oauth2/token";
/// Managed-identity endpoint. Unlike on an Azure VM, a secret is required here.
pub const IDENTITY_PATH: &str = "/oauth2/token";
/// Other endpoints of this cloud; public.
pub const METADATA_PATH: &str = "/metadata/endpoints";

/// Endpoint below an authority, which is `/adfs`, `/common` or a tenant id. Newer clients use the form under `v2.0`.
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
    /// Public keys that verify tokens.
    Keys,
    /// Whether the authority is trusted.
    InstanceDiscovery,
}

impl TokenEndpoint {
    /// Splits a path into authority and endpoint.
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
    /// Seconds, as text, as Azure Active Directory returns it.
    pub expires_in: String,
    pub expires_on: String,
    pub not_before: String,
    pub resource: String,
    pub access_token: Secret,
}

/// Response of the v2.0 endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenResponseV2 {
    pub token_type: String,
    pub expires_in: i64,
    pub ext_expires_in: i64,
    pub access_token: Secret,
}

/// OAuth2 error in the form of Azure Active Directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenError {
    pub error: String,
    /// The first line is for people; ids follow.
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

/// Response of an `Azure-AsyncOperation` URL.
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
    /// Names from the subscription down, joined with `$`.
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
