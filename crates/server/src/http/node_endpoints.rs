//! Endpoints of nodes and hosts: join with a token, connect, reports of hosts, wheels, mount tokens. The requests carry a
//! join token or the credential that was given for it.

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use corro_model::ApiError;
use corro_model::host::{HostCredential, HostJoinRequest, HostReport};
use corro_model::node::{
    JoinRequest, MountTokenRequest, NodeCredential, PROTOCOL_HEADER, WHEELS_PATH, parse_bearer, understands,
};
use http::{HeaderValue, StatusCode, header};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::response::json_response;
use super::{Api, arm_request};
use crate::gateway::MAX_MESSAGE_BYTES;

/// Read size when a wheel is sent.
const WHEEL_CHUNK_BYTES: usize = 256 * 1024;

impl Api {
    /// Exchanges an agent's join token for a node credential; 204 when no cluster needs a node now.
    pub(super) async fn join(&self, request: Request) -> Result<Response, ApiError> {
        check_protocol(&request)?;
        let body = arm_request::read_body(request.into_body(), 16 * 1024).await?;
        if body.is_empty() {
            return Err(ApiError::unauthorized("Authentication failed. A join token is needed."));
        }
        let request: JoinRequest =
            corro_model::job_file::parse(&body).map_err(|problem| ApiError::bad_body(problem.to_string()))?;
        Ok(match self.gateway.join(request).await? {
            Some(credential) => json_response(StatusCode::OK, &credential),
            None => StatusCode::NO_CONTENT.into_response(),
        })
    }

    /// Exchanges a machine's join token for a host credential.
    pub(super) async fn join_host(&self, request: Request) -> Result<Response, ApiError> {
        check_protocol(&request)?;
        let body = arm_request::read_body(request.into_body(), 64 * 1024).await?;
        let request: HostJoinRequest =
            corro_model::job_file::parse(&body).map_err(|problem| ApiError::bad_body(problem.to_string()))?;
        Ok(json_response(StatusCode::OK, &self.gateway.join_host(request).await?))
    }

    /// Handles a host's report and returns the nodes it should run.
    pub(super) async fn host(&self, request: Request) -> Result<Response, ApiError> {
        check_protocol(&request)?;
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let missing = || ApiError::unauthorized("Authentication failed. A host's credential is needed.");
        let credential = header.and_then(HostCredential::parse_bearer).ok_or_else(missing)?;
        let body = arm_request::read_body(request.into_body(), 256 * 1024).await?;
        let report: HostReport =
            corro_model::job_file::parse(&body).map_err(|problem| ApiError::bad_body(problem.to_string()))?;
        Ok(json_response(StatusCode::OK, &self.gateway.host_report(&credential, report).await?))
    }

    /// Lists the wheels for nodes, or sends one.
    pub(super) async fn wheels(&self, request: Request) -> Result<Response, ApiError> {
        self.node_credential(&request)?;
        let below = request.uri().path()[WHEELS_PATH.len()..].trim_start_matches('/');
        if below.is_empty() {
            return Ok(json_response(StatusCode::OK, &self.gateway.wheels().await?));
        }
        let (file, wheel) = self.gateway.wheel(below.to_owned()).await?;
        let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(wheel.bytes), WHEEL_CHUNK_BYTES);
        let mut response = Response::new(Body::from_stream(chunks));
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(wheel.bytes));
        Ok(response)
    }

    /// Issues a mount token to a node on another machine.
    pub(super) async fn mount_token(&self, request: Request) -> Result<Response, ApiError> {
        let credential = self.node_credential(&request)?;
        let body = arm_request::read_body(request.into_body(), 16 * 1024).await?;
        let request: MountTokenRequest =
            corro_model::job_file::parse(&body).map_err(|problem| ApiError::bad_body(problem.to_string()))?;
        let app = self.app.clone();
        let issued = tokio::task::spawn_blocking(move || app.issue_mount_token(&credential.node, &request)).await;
        let pass = issued.map_err(|_| ApiError::new(500, "InternalError", "The mount token could not be issued"))??;
        Ok(json_response(StatusCode::OK, &pass))
    }

    /// Checks the node credential of a request.
    pub(super) fn node_credential(&self, request: &Request) -> Result<NodeCredential, ApiError> {
        let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credential = authorization
            .and_then(parse_bearer)
            .ok_or_else(|| ApiError::unauthorized("Authentication failed. A node's credential is needed."))?;
        self.gateway.check_credential(&credential)?;
        Ok(credential)
    }

    /// Upgrades a node's connection to a WebSocket.
    pub(super) async fn connect(&self, request: Request) -> Result<Response, ApiError> {
        let credential = self.node_credential(&request)?;
        check_protocol(&request)?;
        let (mut parts, _) = request.into_parts();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
            .await
            .map_err(|_| ApiError::new(400, "UpgradeRequired", "This endpoint requires a WebSocket upgrade"))?;
        let gateway = self.gateway.clone();
        // Small buffers: there are many nodes with little traffic each.
        let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).read_buffer_size(4096).write_buffer_size(4096);
        Ok(upgrade.on_upgrade(move |socket| gateway.serve(credential, socket)))
    }
}

/// Checks the agent's protocol version.
fn check_protocol(request: &Request) -> Result<(), ApiError> {
    let version = request.headers().get(PROTOCOL_HEADER).map(|value| value.to_str().unwrap_or("?"));
    understands(version)
}
