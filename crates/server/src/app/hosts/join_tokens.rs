//! Join tokens for hosts. Generated here, returned once, stored as a digest until they expire or are revoked. A server
//! that creates its nodes itself has none.

use std::time::Duration;

use corro_model::host::{HostToken, HostTokenCreated, HostTokenParameters, JoinToken};
use corro_model::{ApiError, Secret, Timestamp};
use corro_store::encryption::{digest, random};
use corro_store::{HostTokenRecord, State};

use crate::app::App;
use crate::digest::hex;

const MAX_TOKENS: usize = 1000;

impl App {
    pub async fn create_host_token(&self, body: HostTokenParameters) -> Result<HostTokenCreated, ApiError> {
        let endpoint = self.fleet.hosts.join_endpoint().ok_or_else(hosts_not_supported)?;
        let created = self.now();
        let expires = created.plus(lifetime(body.ttl_seconds)?);
        let server = match body.server {
            Some(url) => check_url(url)?,
            None => endpoint.url.clone(),
        };
        let ca_fingerprint = endpoint.ca_fingerprint.clone().filter(|_| server.starts_with("https://"));
        let secret = Secret::new(hex(&random::<32>()));
        let record = HostTokenRecord { secret_digest: digest(secret.expose()), created, expires, hosts: 0 };
        let id = hex(&random::<4>());
        let key = id.clone();
        let commit = self.store.commit(move |txn| {
            if txn.state().host_tokens.len() >= MAX_TOKENS {
                let message = format!("The limit of {MAX_TOKENS} join tokens is reached: revoke unused ones");
                return Err(ApiError::conflict("TooManyHostTokens", message));
            }
            txn.put(key, record);
            Ok(())
        });
        commit.await?;
        let token = JoinToken { server: server.clone(), ca_fingerprint: ca_fingerprint.clone(), secret }.encode();
        Ok(HostTokenCreated { id, token, server, ca_fingerprint, expires })
    }

    /// Lists the tokens, ordered by id.
    pub fn host_tokens(&self) -> Vec<HostToken> {
        let now = self.now();
        let shown = |(id, record): (&String, &std::sync::Arc<HostTokenRecord>)| HostToken {
            id: id.clone(),
            created: record.created,
            expires: record.expires,
            expired: record.expires <= now,
            hosts: record.hosts,
        };
        self.snapshot().host_tokens.iter().map(shown).collect()
    }

    /// Returns `false` if there is no such token.
    pub async fn revoke_host_token(&self, id: String) -> Result<bool, ApiError> {
        let commit = self.store.commit_relief(move |txn| {
            let known = txn.get::<HostTokenRecord>(&id).is_some();
            txn.remove::<HostTokenRecord>(&id);
            Ok::<_, ApiError>(known)
        });
        commit.await
    }
}

/// Id of a valid token, or the error to return to the host.
pub fn find_join_token(state: &State, secret: &Secret, now: Timestamp) -> Result<String, ApiError> {
    let given = digest(secret.expose());
    match state.host_tokens.iter().find(|(_, record)| record.secret_digest == given) {
        Some((id, record)) if record.expires > now => Ok(id.clone()),
        Some((id, record)) => Err(ApiError::unauthorized(format!(
            "The join token {id} expired at {}: make a new one with 'corro host token'",
            record.expires
        ))),
        None => Err(ApiError::unauthorized(
            "The join token is not known to this server, or was revoked: make a new one with 'corro host token'",
        )),
    }
}

fn hosts_not_supported() -> ApiError {
    let message = "This server creates its nodes itself, so hosts cannot join it: hosts join a 'corro server'";
    ApiError::conflict("HostsNotTaken", message)
}

fn lifetime(seconds: Option<u64>) -> Result<Duration, ApiError> {
    type P = HostTokenParameters;
    let seconds = seconds.unwrap_or(P::DEFAULT_TTL_SECONDS);
    if !(P::MIN_TTL_SECONDS..=P::MAX_TTL_SECONDS).contains(&seconds) {
        let message =
            format!("the token would be valid for {seconds} s: use {} to {} s", P::MIN_TTL_SECONDS, P::MAX_TTL_SECONDS);
        return Err(ApiError::invalid("ttlSeconds", message));
    }
    Ok(Duration::from_secs(seconds))
}

fn check_url(url: String) -> Result<String, ApiError> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain = |rest: &str| rest.len() <= 300 && rest.bytes().all(|byte| byte.is_ascii_graphic());
    match rest.is_some_and(|rest| !rest.is_empty() && plain(rest)) {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => {
            let message = format!("'{}' is not a server's URL: write it as https://gpu-box:8470", url.escape_debug());
            Err(ApiError::invalid("server", message))
        }
    }
}
