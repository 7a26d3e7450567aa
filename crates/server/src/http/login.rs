//! Token endpoints in the shape of the retired directory (Azure AD): client credentials, and the discovery documents that clients
//! read first. No token without a secret: managed identities, which need none on an Azure VM, must present one here.

mod documents;
mod token_request;

use std::borrow::Cow;

use axum::extract::Request;
use axum::response::Response;
use corro_model::arm::{IDENTITY_PATH, METADATA_PATH, TokenEndpoint, TokenError, TokenResponseV2};
use corro_model::storage::query_pairs;
use corro_model::{ApiError, Timestamp};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use self::token_request::{TokenProtocol, TokenRequest};
use super::Api;
use super::arm_request::{base_url, read_body};
use super::response::json_response;
use crate::app::access::tokens::{IssueError, TOKEN_LIFETIME_S};
use crate::app::guid;
use crate::app::history::audit::AuditedRequest;

/// Authorities that clients know by name; the tenant's id is one too.
const AUTHORITIES: [&str; 3] = ["adfs", "common", "organizations"];

/// Endpoint of a login path.
pub enum LoginRoute {
    Authority { authority: String, endpoint: TokenEndpoint },
    Identity,
    Metadata,
}

/// Refused token request: OAuth error, the directory's error number, and the message.
#[derive(Debug, PartialEq)]
pub struct TokenRefusal {
    status: StatusCode,
    error: &'static str,
    code: u32,
    text: String,
}

impl TokenRefusal {
    fn bad(error: &'static str, code: u32, text: impl Into<String>) -> Self {
        TokenRefusal { status: StatusCode::BAD_REQUEST, error, code, text: text.into() }
    }

    fn unauthorized(code: u32, text: &str) -> Self {
        TokenRefusal { status: StatusCode::UNAUTHORIZED, error: "invalid_client", code, text: text.to_owned() }
    }

    fn body(&self, correlation: String, now: Timestamp) -> TokenError {
        let (trace, time) = (guid(), now.to_string().replace('T', " "));
        let time = time.split_once('.').map_or(time.clone(), |(seconds, _)| format!("{seconds}Z"));
        let ids = format!("Trace ID: {trace}\r\nCorrelation ID: {correlation}\r\nTimestamp: {time}");
        TokenError {
            error: self.error.to_owned(),
            error_description: format!("AADSTS{}: {}\r\n{ids}", self.code, self.text),
            error_codes: vec![self.code],
            timestamp: time,
            trace_id: trace,
            correlation_id: correlation,
        }
    }
}

impl LoginRoute {
    pub fn find(path: &str) -> Option<LoginRoute> {
        match path.trim_end_matches('/') {
            IDENTITY_PATH => Some(LoginRoute::Identity),
            METADATA_PATH => Some(LoginRoute::Metadata),
            path => {
                let (authority, endpoint) = TokenEndpoint::parse(path)?;
                Some(LoginRoute::Authority { authority: authority.to_owned(), endpoint })
            }
        }
    }
}

impl Api {
    pub(super) async fn log_in(
        &self,
        route: LoginRoute,
        request: Request,
        address: &str,
    ) -> Result<Response, ApiError> {
        let (parts, body) = request.into_parts();
        let method = &parts.method;
        let protocol = match &route {
            LoginRoute::Metadata if method == Method::GET => return Ok(self.metadata(&parts)),
            LoginRoute::Identity if matches!(*method, Method::GET | Method::POST) => TokenProtocol::ManagedIdentity,
            LoginRoute::Authority { authority, endpoint } => {
                if !self.is_authority(authority) {
                    let text = format!("Tenant '{authority}' not found. This server's tenant is shown by its owner.");
                    return Ok(self.refuse(&parts, address, None, TokenRefusal::bad("invalid_request", 90002, text)));
                }
                match (endpoint, method) {
                    (TokenEndpoint::Token { v2: false }, &Method::POST) => TokenProtocol::V1,
                    (TokenEndpoint::Token { v2: true }, &Method::POST) => TokenProtocol::V2,
                    (TokenEndpoint::DeviceCode, &Method::POST)
                    | (TokenEndpoint::Authorize, &Method::GET | &Method::POST) => {
                        let text = "Logins with a browser or a device code are not supported: use a service principal, 'az login --service-principal'";
                        return Ok(self.refuse(
                            &parts,
                            address,
                            None,
                            TokenRefusal::bad("unauthorized_client", 700016, text),
                        ));
                    }
                    (TokenEndpoint::InstanceDiscovery, &Method::GET) => return Ok(self.discovery(&parts, address)),
                    (TokenEndpoint::OpenIdConfiguration { v2 }, &Method::GET) => {
                        let document =
                            documents::open_id(&base_url(&parts), authority, &self.app.installation.tenant, *v2);
                        return Ok(json_response(StatusCode::OK, &document));
                    }
                    // Tokens are signed with a key that only the server has: no client can or needs to verify them.
                    (TokenEndpoint::Keys, &Method::GET) => {
                        return Ok(json_response(StatusCode::OK, &serde_json::json!({"keys": []})));
                    }
                    _ => return Err(method_not_allowed(&parts)),
                }
            }
            _ => return Err(method_not_allowed(&parts)),
        };
        let body = read_body(body, 16 * 1024).await?;
        let form = String::from_utf8_lossy(&body);
        Ok(match token_request::parse(protocol, &form, parts.uri.query().unwrap_or_default(), &parts.headers) {
            Ok(token_request) => self.token(&parts, address, protocol, token_request),
            Err(refusal) => self.refuse(&parts, address, None, refusal),
        })
    }

    fn token(&self, parts: &Parts, address: &str, protocol: TokenProtocol, token_request: TokenRequest) -> Response {
        let TokenRequest { client_id, secret, resource } = token_request;
        match (self.app.issue_token(&client_id, &secret, &resource), protocol) {
            (Ok(token), TokenProtocol::V1 | TokenProtocol::ManagedIdentity) => json_response(StatusCode::OK, &token),
            (Ok(token), TokenProtocol::V2) => {
                let (token_type, access_token) = (token.token_type, token.access_token);
                let (expires_in, ext_expires_in) = (TOKEN_LIFETIME_S, TOKEN_LIFETIME_S);
                let token = TokenResponseV2 { token_type, expires_in, ext_expires_in, access_token };
                json_response(StatusCode::OK, &token)
            }
            // Unknown id and wrong secret get the same response, so that ids cannot be guessed.
            (Err(IssueError::WrongCredentials), _) => {
                let refusal = TokenRefusal::unauthorized(7000215, "The client id or secret is wrong");
                self.refuse(parts, address, Some(&client_id), refusal)
            }
            (Err(IssueError::SecretExpired), _) => {
                let text = "The secret has expired: an owner makes a new one with 'corro ad sp reset-credentials'";
                self.refuse(parts, address, Some(&client_id), TokenRefusal::unauthorized(7000222, text))
            }
        }
    }

    /// Refuses and audits a token request.
    fn refuse(&self, parts: &Parts, address: &str, client: Option<&str>, refusal: TokenRefusal) -> Response {
        // The id may be anything, even a secret in the wrong field, so it is audited only if it is a known principal.
        let tried = client.filter(|id| self.app.snapshot().principals.contains_key(*id));
        let (method, path, status) = (parts.method.as_str(), parts.uri.path(), refusal.status.as_u16());
        let entry = AuditedRequest { caller: None, address, method, path, status, code: refusal.error, tried };
        self.audit.record(&self.app.store, &entry);
        json_response(refusal.status, &refusal.body(correlation_id(&parts.headers), self.app.now()))
    }

    fn is_authority(&self, name: &str) -> bool {
        let mut known = AUTHORITIES.into_iter().chain([&*self.app.installation.tenant]);
        known.any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Instance discovery: only this server's own authorities are valid.
    fn discovery(&self, parts: &Parts, address: &str) -> Response {
        let query = parts.uri.query().unwrap_or_default();
        let endpoint = query_pairs(query).find(|(name, _)| name == "authorization_endpoint").map(|(_, value)| value);
        let authority = endpoint.as_deref().and_then(|endpoint| documents::authority_in(endpoint, &base_url(parts)));
        match authority.filter(|authority| self.is_authority(authority)) {
            Some(authority) => {
                let v2 = endpoint.as_deref().is_some_and(|endpoint| endpoint.contains("/v2.0/"));
                json_response(StatusCode::OK, &documents::instance(&base_url(parts), authority, v2))
            }
            None => {
                let text = "Unknown or invalid instance: authorization_endpoint is not an address of this server";
                self.refuse(parts, address, None, TokenRefusal::bad("invalid_instance", 50049, text))
            }
        }
    }

    fn metadata(&self, parts: &Parts) -> Response {
        let query = parts.uri.query().unwrap_or_default();
        let version = query_pairs(query).find(|(name, _)| name.eq_ignore_ascii_case("api-version"));
        let version = version.map_or_else(Cow::default, |(_, version)| version);
        let document = documents::metadata(&base_url(parts), &self.app.installation.tenant, &version);
        json_response(StatusCode::OK, &document)
    }
}

fn method_not_allowed(parts: &Parts) -> ApiError {
    ApiError::new(405, "MethodNotAllowed", format!("{} is not supported on '{}'", parts.method, parts.uri.path()))
}

/// The client's own request id, or a new one.
fn correlation_id(headers: &HeaderMap) -> String {
    let sent = headers.get("client-request-id").and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|text| uuid::Uuid::parse_str(text).ok());
    sent.map_or_else(guid, |id| id.to_string())
}
