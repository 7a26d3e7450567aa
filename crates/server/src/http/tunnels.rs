//! The two ends of a tunnel over HTTP: a client's request, which is refused or upgraded only after the node's agent has connected to
//! the target, and the agent's request with the secret of the order.

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use corro_model::ApiError;
use corro_model::node::{MAX_TUNNEL_MESSAGE, TUNNEL_HEADER, TunnelTarget};
use corro_model::ops::NoBody;
use http::request::Parts;

use super::Api;
use super::arm_request::ArmRequest;
use crate::app::App;
use crate::app::resources::lookup::JobPath;
use crate::gateway::Gateway;

/// Read buffer of a tunnel's WebSocket.
const READ_BUFFER: usize = 16 * 1024;

/// Opens a tunnel for a client with the right to it.
pub(super) async fn open(
    gateway: Gateway,
    app: App,
    request: ArmRequest<NoBody>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let target = TunnelTarget::parse(&request.param("target"))?;
    let path = JobPath {
        group: request.param("group"),
        workspace: request.param("workspace"),
        experiment: request.param("experiment"),
        job: request.param("job"),
    };
    let admitted = app.admit_tunnel(&path, request.query("node"))?;
    let agent = gateway.open_tunnel(&admitted.node, admitted.attempt, target).await?;
    Ok(upgrade.on_upgrade(move |client| gateway.relay_tunnel(client, agent, target, admitted.permit)))
}

impl Api {
    /// Upgrades an agent's end of a tunnel.
    pub(super) async fn tunnel(&self, request: Request) -> Result<Response, ApiError> {
        let credential = self.node_credential(&request)?;
        let (mut parts, _) = request.into_parts();
        let upgrade = websocket_upgrade(&mut parts).await?;
        let secret = parts.headers.get(TUNNEL_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let opened = self.gateway.claim_tunnel(&credential, secret)?;
        // An error means that the client no longer waits; the socket is closed then.
        Ok(upgrade.on_upgrade(move |socket| async move { drop(opened.send(socket)) }))
    }
}

/// The upgrade of a request to a WebSocket, with the limits of a tunnel.
pub(super) async fn websocket_upgrade(parts: &mut Parts) -> Result<WebSocketUpgrade, ApiError> {
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &())
        .await
        .map_err(|_| ApiError::new(400, "UpgradeRequired", "This endpoint requires a WebSocket upgrade"))?;
    Ok(upgrade
        .max_message_size(MAX_TUNNEL_MESSAGE)
        .max_frame_size(MAX_TUNNEL_MESSAGE)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * MAX_TUNNEL_MESSAGE))
}
