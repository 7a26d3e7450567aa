//! Access tokens: JSON Web Tokens signed with HMAC-SHA256 (`HS256`), issued for a client id and secret and verified on
//! every request. The format is JWT because one login flow of the Azure clients reads claims from it.
//!
//! Implemented with the `hmac` crate, which SAS signatures need anyway: general JWT crates pull in RSA and elliptic
//! curves.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use corro_model::arm::TokenResponse;
use corro_model::{Secret, Timestamp};
use corro_store::PrincipalRecord;
use corro_store::encryption::digest;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::app::App;
use crate::app::access::caller::Caller;
use crate::app::access::installation;

/// Prefix of the credential id in mount tokens: `node:NODE:EPOCH:ATTEMPT`. The attempt is empty for a volume of the
/// cluster.
pub const NODE_CREDENTIAL_PREFIX: &str = corro_file_service::NODE_PREFIX;

pub const TOKEN_LIFETIME_S: i64 = 3600;
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Claims {
    /// Client id.
    appid: String,
    tid: String,
    /// Version of the principal's credential (see [`credential_version`]).
    #[serde(default)]
    cred: String,
    iat: i64,
    exp: i64,
}

/// Reason why no token is issued.
#[derive(Debug, PartialEq, Eq)]
pub enum IssueError {
    /// Unknown client id, or wrong secret.
    WrongCredentials,
    /// The secret is correct but has expired.
    SecretExpired,
}

impl App {
    /// Issues a token for the principal with this id, or with this name after `http://`.
    pub fn issue_token(&self, client_id: &str, secret: &Secret, resource: &str) -> Result<TokenResponse, IssueError> {
        let snapshot = self.snapshot();
        let named = |record: &PrincipalRecord| client_id.strip_prefix("http://") == Some(record.name.as_str());
        let by_name = || snapshot.principals.iter().find(|(_, record)| named(record)).map(|(id, _)| id.as_str());
        let client_id = if client_id.starts_with("http://") { by_name().unwrap_or_default() } else { client_id };
        if !installation::verify_secret(&snapshot, client_id, secret) {
            return Err(IssueError::WrongCredentials);
        }
        let record = snapshot.principals.get(client_id).ok_or(IssueError::WrongCredentials)?;
        if !is_usable(record, self.now()) {
            return Err(IssueError::SecretExpired);
        }
        let cred = credential_version(record);
        let now = self.now().seconds();
        let claims = Claims {
            appid: client_id.to_owned(),
            tid: self.installation.tenant.to_string(),
            cred,
            iat: now,
            exp: now + TOKEN_LIFETIME_S,
        };
        Ok(TokenResponse {
            token_type: "Bearer".to_owned(),
            expires_in: TOKEN_LIFETIME_S.to_string(),
            expires_on: claims.exp.to_string(),
            not_before: now.to_string(),
            resource: resource.to_owned(),
            access_token: Secret::new(encode(&self.installation.token_key, &claims)),
        })
    }

    /// Caller of a token. `None` if the token is forged or expired, or its credential was reset or revoked.
    pub fn authenticate(&self, token: &str) -> Option<Caller> {
        let claims = decode(&self.installation.token_key, token, self.now())?;
        let snapshot = self.snapshot();
        let record = snapshot.principals.get(&claims.appid)?;
        let current = is_usable(record, self.now()) && credential_version(record) == claims.cred;
        let credential = format!("{}.{}", claims.appid, claims.cred);
        current.then(|| Caller {
            id: claims.appid,
            credential,
            expires_at: claims.exp,
            assignments: record.assignments.clone(),
        })
    }

    /// Whether a credential id is still valid. Used for SAS links and open connections.
    pub fn is_credential_valid(&self, credential: &str) -> bool {
        if let Some(node) = credential.strip_prefix(NODE_CREDENTIAL_PREFIX) {
            return self.is_mount_token_valid(node);
        }
        let Some((id, version)) = credential.rsplit_once('.') else { return false };
        let snapshot = self.snapshot();
        snapshot
            .principals
            .get(id)
            .is_some_and(|record| is_usable(record, self.now()) && credential_version(record) == version)
    }
}

/// Changes with every password reset and every revocation. A truncated digest: reveals neither.
fn credential_version(record: &PrincipalRecord) -> String {
    digest(&format!("{} {}", record.secret_digest, record.revocations))[..16].to_owned()
}

fn is_usable(record: &PrincipalRecord, now: Timestamp) -> bool {
    record.expires.is_none_or(|end| now < end)
}

fn encode(key: &[u8], claims: &Claims) -> String {
    let body = serde_json::to_vec(claims).expect("claims are plain data");
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(body));
    let signature = URL_SAFE_NO_PAD.encode(mac(key, &signed).finalize().into_bytes());
    format!("{signed}.{signature}")
}

/// Only our own header is accepted, so a client cannot choose another algorithm.
fn decode(key: &[u8], token: &str, now: Timestamp) -> Option<Claims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, body) = signed.split_once('.')?;
    if header != URL_SAFE_NO_PAD.encode(HEADER) {
        return None;
    }
    mac(key, signed).verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    (now.seconds() < claims.exp).then_some(claims)
}

fn mac(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_valid_until_they_expire_and_cannot_be_forged() {
        let claims = || Claims { appid: "a".to_owned(), tid: "t".to_owned(), cred: "c".to_owned(), iat: 0, exp: 100 };
        let token = encode(b"key", &claims());
        let at = |s: i64| Timestamp::from_millis(s * 1000);
        assert_eq!(decode(b"key", &token, at(99)), Some(claims()));
        assert_eq!(decode(b"key", &token, at(100)), None);
        assert_eq!(decode(b"other", &token, at(1)), None);
        let forged = Claims { exp: 1_000_000, ..claims() };
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&forged).expect("plain data"));
        let (rest, signature) = token.rsplit_once('.').expect("three parts");
        let header = rest.split_once('.').expect("three parts").0;
        assert_eq!(decode(b"key", &format!("{header}.{body}.{signature}"), at(1)), None);
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        assert_eq!(decode(b"key", &format!("{none}.{body}."), at(1)), None);
        assert_eq!(decode(b"key", "nonsense", at(1)), None);
    }
}
