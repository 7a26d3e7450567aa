//! The client of a request: its address and its program.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use http::header;

use crate::app::access::caller::ClientProgram;

/// The client's IP address.
pub(super) fn remote_address(request: &Request) -> String {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.ip().to_canonical().to_string())
}

/// Recognises the retired service's client library, also inside its CLI, by its user agent.
pub(super) fn client_of(request: &Request, address: &str) -> ClientProgram {
    let agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match agent.split_whitespace().any(|product| product.starts_with("azure-mgmt-batchai/")) {
        true => ClientProgram::Azure(address.to_owned()),
        false => ClientProgram::Other,
    }
}
