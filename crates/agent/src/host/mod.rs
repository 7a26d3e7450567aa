//! A machine that joins a server as a host: its inventory ([`inventory`]), its credential and its reports. Starting the
//! agents of its nodes is left to the caller. Opens outbound connections only.

pub mod gpu_states;
pub mod inventory;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_base::error_chain;
use corro_client::{Trust, tls_error};
use corro_model::ApiError;
use corro_model::Secret;
use corro_model::host::{
    DesiredHost, HOST_JOIN_PATH, HOST_PATH, HostCredential, HostJoinRequest, HostReport, Inventory,
};
use corro_model::node::{INSTANCE_HEADER, PROTOCOL, PROTOCOL_HEADER};
use reqwest::StatusCode;
use thiserror::Error;

use crate::fs::json_file;
use crate::identity::{self, IdentityError, RootLock};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CREDENTIAL: &str = "host.json";

/// Errors of joining and reporting as a host.
#[derive(Debug, Error)]
pub enum HostError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot read or write the host's credential in {}", path.display())]
    Credential { path: PathBuf, source: io::Error },
    /// A refusal that a retry will not change.
    #[error("{message}")]
    Refused { status: u16, message: String },
    #[error("the server has removed this host")]
    Removed,
    #[error("the certificate of the server at {server} is not the one that the join token names: {source}")]
    Untrusted { server: String, source: tokio_rustls::rustls::Error },
    #[error("cannot reach {server} ({why})")]
    Unreachable { server: String, why: String },
}

/// Client of the server's host API, with this host's credential.
pub struct HostClient {
    server: String,
    client: reqwest::Client,
    credential: HostCredential,
}

/// Locks the host's directory against a second process.
pub fn lock(root: &Path) -> Result<RootLock, HostError> {
    Ok(identity::lock(root)?)
}

/// Loads the credential that an earlier run stored.
pub fn stored_credential(root: &Path) -> Result<Option<HostCredential>, HostError> {
    let path = root.join(CREDENTIAL);
    json_file::read(&path).map_err(|source| HostError::Credential { path, source })
}

/// Exchanges the secret of a join token for a credential and stores it.
pub async fn join(
    root: &Path,
    (server, trust): (&str, &Trust),
    secret: Secret,
    name: String,
    inventory: Inventory,
) -> Result<HostCredential, HostError> {
    let client = identity::client_for(server, trust, REQUEST_TIMEOUT)?;
    let join = HostJoinRequest { token: secret, name, inventory };
    let request = client.post(format!("{server}{HOST_JOIN_PATH}")).header("content-type", "application/json");
    let body = serde_json::to_vec(&join).expect("a request is plain data");
    let (_, bytes) = send(server, request.body(body), None).await?;
    let credential: HostCredential = serde_json::from_slice(&bytes).map_err(|_| invalid_response(server))?;
    let path = root.join(CREDENTIAL);
    json_file::write(&path, &credential).map_err(|source| HostError::Credential { path, source })?;
    Ok(credential)
}

/// Deletes the credential: the next start joins as a new host.
pub fn forget(root: &Path) -> Result<(), HostError> {
    let path = root.join(CREDENTIAL);
    json_file::remove(&path).map_err(|source| HostError::Credential { path, source })
}

impl HostClient {
    pub fn new(server: &str, trust: &Trust, credential: HostCredential) -> Result<HostClient, HostError> {
        let client = identity::client_for(server, trust, REQUEST_TIMEOUT)?;
        Ok(HostClient { server: server.to_owned(), client, credential })
    }

    pub fn name(&self) -> &str {
        &self.credential.name
    }

    /// Reports the host's state and returns the nodes that it should run.
    pub async fn report(&self, report: &HostReport) -> Result<DesiredHost, HostError> {
        let body = serde_json::to_vec(report).expect("a report is plain data");
        let request =
            self.client.post(format!("{}{HOST_PATH}", self.server)).header("content-type", "application/json");
        let request = request.header("authorization", self.credential.bearer()).body(body);
        let (_, bytes) = send(&self.server, request, Some(&self.credential.instance)).await?;
        let desired: DesiredHost = serde_json::from_slice(&bytes).map_err(|_| invalid_response(&self.server))?;
        if desired.removed { Err(HostError::Removed) } else { Ok(desired) }
    }
}

fn invalid_response(server: &str) -> HostError {
    HostError::Unreachable {
        server: server.to_owned(),
        why: "its response is invalid: does it have another version?".into(),
    }
}

/// Sends a request and returns the body of a successful response. A 401 means removal only if it comes from the
/// installation that issued the credential: another server may listen at the address now.
async fn send(
    server: &str,
    request: reqwest::RequestBuilder,
    instance: Option<&str>,
) -> Result<(StatusCode, Vec<u8>), HostError> {
    let unreachable = |error: reqwest::Error| match tls_error(&error) {
        Some(source) => HostError::Untrusted { server: server.to_owned(), source: source.clone() },
        None => HostError::Unreachable { server: server.to_owned(), why: error_chain::root_cause(&error) },
    };
    let response = request.header(PROTOCOL_HEADER, PROTOCOL).send().await.map_err(unreachable)?;
    let status = response.status();
    let server_instance =
        response.headers().get(INSTANCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = response.bytes().await.map_err(unreachable)?.to_vec();
    if status.is_success() {
        return Ok((status, bytes));
    }
    if status == StatusCode::UNAUTHORIZED && instance.is_some() && server_instance.as_deref() == instance {
        return Err(HostError::Removed);
    }
    let message = identity::error_message(&bytes, status);
    match status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS && instance.is_none() {
        true => Err(HostError::Refused { status: status.as_u16(), message }),
        false => Err(HostError::Unreachable { server: server.to_owned(), why: message }),
    }
}

/// Checks a host name by the server's rules.
pub fn check_name(name: &str) -> Result<(), ApiError> {
    corro_model::host::check_host_name(name)
}
