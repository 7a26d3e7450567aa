//! HTTP endpoints of the server. Each translates one protocol and decides nothing. All requests arrive at [`Api::handle`], which
//! routes them: storage, dashboard, login, agents, or the resource manager. Deny by default: a request without credentials gets
//! 401 before anything is looked up.
//!
//! Reading order: `connection` (below all endpoints); this file (routing, audit); `authentication` with `rate_limit` and `client`; the endpoints
//! `file_requests`, `login`, `node_endpoints`, `events` and `health`; the resource manager's `router`, `arm_request`, `arm` and `response`.

mod arm;
mod arm_request;
mod authentication;
mod client;
pub mod connection;
mod events;
mod file_requests;
mod health;
mod login;
mod node_endpoints;
pub mod rate_limit;
mod request_span;
mod response;
mod router;
mod tunnels;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use corro_file_service::{AddressStyle, FileService};
use corro_model::events::EVENTS_PATH;
use corro_model::host::{HOST_JOIN_PATH, HOST_PATH};
use corro_model::node::{CONNECT_PATH, INSTANCE_HEADER, JOIN_PATH, MOUNT_TOKENS_PATH, TUNNEL_PATH, WHEELS_PATH};
use corro_model::ops::{AccountsListKeys, JobsListOutputFiles, JobsTunnel, Operation, SharesLink};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Body as _;

use self::authentication::DeniedRequest;
use self::client::{client_of, remote_address};
use self::connection::session_revocation::ConnectionRegistry;
use self::file_requests::{account_of, handle_file_request};
use self::health::{HEALTH_PATH, METRICS_PATH, READY_PATH, RequestIds, classify_route};
use self::login::LoginRoute;
use self::rate_limit::RateLimits;
use self::request_span::RequestSpan;
use self::response::error_response;
use self::router::Router;
use crate::app::App;
use crate::app::access::caller::ClientProgram;
use crate::app::history::audit::{AuditLog, AuditedRequest};
use crate::gateway::Gateway;
use crate::{dashboard, docs};

pub use connection::HttpService;
pub use connection::listener::serve;
pub use file_requests::FileServiceOnly;

/// Largest body of a resource-manager request.
const MAX_BODY_BYTES: usize = 1024 * 1024;

#[derive(Clone)]
pub struct Api {
    app: App,
    gateway: Gateway,
    files: FileService,
    router: Arc<Router>,
    limits: Arc<RateLimits>,
    audit: AuditLog,
    connections: ConnectionRegistry,
}

/// A handled resource-manager request and its caller.
struct HandledRequest {
    caller: String,
    operation: &'static str,
    response: Response,
}

impl HttpService for Api {
    async fn handle(&self, request: Request) -> Response {
        Api::handle(self, request).await
    }

    fn connections(&self) -> ConnectionRegistry {
        self.connections.clone()
    }
}

impl Api {
    pub fn new(app: App, gateway: Gateway, files: FileService, limits: Arc<RateLimits>, audit: AuditLog) -> Self {
        let router = arm::routes(&gateway);
        Self {
            app,
            gateway,
            files,
            router: Arc::new(router),
            limits,
            audit,
            connections: ConnectionRegistry::default(),
        }
    }

    /// Handles any request, and records its trace span when traces are on.
    pub async fn handle(&self, mut request: Request) -> Response {
        let Some(span) = RequestSpan::begin(&self.app.telemetry.traces, &mut request) else {
            return self.route_request(request).await;
        };
        let mut response = self.route_request(request).await;
        span.end(&self.app.telemetry.traces, &self.router, &mut response);
        response
    }

    async fn route_request(&self, request: Request) -> Response {
        if let Some((account, style)) = account_of(&request) {
            if style == AddressStyle::Path
                && let Some(page) = docs::answer(request.method(), request.uri(), request.headers())
            {
                return page;
            }
            let numbers = &self.app.telemetry.http_counters;
            let since = numbers.begin_file_request(request.body().size_hint().exact().unwrap_or(0));
            let response = handle_file_request(&self.files, &account, style, request).await;
            let bytes = content_length(&response);
            numbers.end_file_request(response.status().as_u16(), bytes, since);
            return response;
        }
        Box::pin(self.handle_api(request)).await
    }

    /// Handles every request that is not for the storage service.
    async fn handle_api(&self, request: Request) -> Response {
        let began = Instant::now();
        let route = classify_route(request.method(), request.uri().path());
        let ids = RequestIds::from_headers(request.headers());
        let (parts, body) = request.into_parts();
        if let Some(page) = dashboard::answer(&parts) {
            return page;
        }
        let request = Request::from_parts(parts, body);
        let head = request.method() == Method::HEAD;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let address = remote_address(&request);
        let client_request_id = response::requested_client_id(request.headers());
        let result = match (&method, path.as_str()) {
            (_, path) if let Some(login_route) = LoginRoute::find(path) => {
                self.unauthenticated(&address, self.log_in(login_route, request, &address)).await
            }
            (&Method::POST, JOIN_PATH) => self.unauthenticated(&address, self.join(request)).await,
            (&Method::POST, HOST_JOIN_PATH) => self.unauthenticated(&address, self.join_host(request)).await,
            (&Method::POST, HOST_PATH) => match self.host(request).await {
                Ok(response) => Ok(response),
                Err(error) => self.unauthenticated(&address, async { Err(error) }).await,
            },
            // After a restart all nodes reconnect at once, so only requests without a valid credential are rate-limited.
            (&Method::GET, CONNECT_PATH) => match self.connect(request).await {
                Ok(response) => Ok(response),
                Err(error) => self.unauthenticated(&address, async { Err(error) }).await,
            },
            (&Method::GET, TUNNEL_PATH) => match self.tunnel(request).await {
                Ok(response) => Ok(response),
                Err(error) => self.unauthenticated(&address, async { Err(error) }).await,
            },
            (&Method::GET, path) if is_path_or_below(path, WHEELS_PATH) => match self.wheels(request).await {
                Ok(response) => Ok(response),
                Err(error) => self.unauthenticated(&address, async { Err(error) }).await,
            },
            (&Method::GET, EVENTS_PATH) => self.events(&request, &address),
            (&Method::GET, METRICS_PATH) => self.metrics(&request, &address),
            (&Method::GET | &Method::HEAD, HEALTH_PATH) => Ok(health::health()),
            (&Method::GET | &Method::HEAD, READY_PATH) => Ok(health::readiness(&self.app)),
            (&Method::POST, MOUNT_TOKENS_PATH) => match self.mount_token(request).await {
                Ok(response) => Ok(response),
                Err(error) => self.unauthenticated(&address, async { Err(error) }).await,
            },
            _ => match self.handle_arm(request, &address).await {
                Ok(HandledRequest { caller, operation, response }) => {
                    self.audit_disclosure(operation, &caller, &address, &path);
                    Ok(response)
                }
                Err(refused) => Err(refused),
            },
        };
        let mut response = match result {
            Ok(response) => response,
            Err(DeniedRequest { caller, error }) => {
                // Denied reads are not audited, unless the caller is unknown or has no right.
                if !matches!(method, Method::GET | Method::HEAD) || matches!(error.status, 401 | 403) {
                    self.audit_denied(caller.as_deref(), &address, &method, &path, error.status, &error.code);
                }
                let mut response = error_response(&error);
                if (path == CONNECT_PATH || path == HOST_PATH) && response.status() == StatusCode::UNAUTHORIZED {
                    // An agent gives up its node only if this very server, not another one at its address, rejects it.
                    let instance =
                        HeaderValue::from_str(&self.app.installation.tenant).expect("a guid can be a header");
                    response.headers_mut().insert(INSTANCE_HEADER, instance);
                }
                response
            }
        };
        if head {
            *response.body_mut() = Body::empty();
        }
        if let Some(id) = client_request_id {
            response.headers_mut().insert(response::CLIENT_REQUEST_ID, id);
        }
        self.app.telemetry.http_counters.record_response(route, response.status().as_u16(), began.elapsed());
        ids.log(&method, &path, &address, &response, began);
        response
    }

    fn audit_denied(&self, caller: Option<&str>, address: &str, method: &Method, path: &str, status: u16, code: &str) {
        let entry = AuditedRequest { caller, address, method: method.as_str(), path, status, code, tried: None };
        self.audit.record(&self.app.store, &entry);
    }

    /// Audits tunnels and the disclosure of keys and SAS URLs. Changes are audited with the change itself.
    fn audit_disclosure(&self, operation: &str, caller: &str, address: &str, path: &str) {
        let (caller, path) = (Some(caller), path.trim_end_matches('/'));
        let entry = AuditedRequest { caller, address, method: "POST", path, status: 200, code: "", tried: None };
        match operation {
            AccountsListKeys::ID => self.audit.record(&self.app.store, &entry),
            JobsListOutputFiles::ID | SharesLink::ID => self.audit.record_once(&self.app.store, &entry),
            JobsTunnel::ID => {
                self.audit.record_once(&self.app.store, &AuditedRequest { method: "GET", status: 101, ..entry })
            }
            _ => {}
        }
    }

    /// Authenticates and dispatches a resource-manager request.
    async fn handle_arm(&self, request: Request, address: &str) -> Result<HandledRequest, DeniedRequest> {
        let (caller, remaining, header) = self.authenticate(&request, address)?;
        let id = caller.id.clone();
        let client = client_of(&request, address);
        let result = self.router.dispatch(&self.app.acting_as(caller, address, client), request).await;
        let (operation, mut response) = result.map_err(|error| DeniedRequest { caller: Some(id.clone()), error })?;
        response.headers_mut().insert(header, HeaderValue::from(remaining));
        Ok(HandledRequest { caller: id, operation, response })
    }

    /// The event stream, filtered by what the caller may read.
    fn events(&self, request: &Request, address: &str) -> Result<Response, DeniedRequest> {
        let (caller, ..) = self.authenticate(request, address)?;
        let id = caller.id.clone();
        let app = self.app.acting_as(caller, address, ClientProgram::Other);
        events::respond(&app, request).map_err(|error| DeniedRequest { caller: Some(id), error })
    }

    /// Prometheus metrics.
    fn metrics(&self, request: &Request, address: &str) -> Result<Response, DeniedRequest> {
        let (caller, ..) = self.authenticate(request, address)?;
        let id = caller.id.clone();
        let app = self.app.acting_as(caller, address, ClientProgram::Other);
        health::metrics(&app, request.headers()).map_err(|error| DeniedRequest { caller: Some(id), error })
    }
}

fn is_path_or_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Size of a response's body. A streamed body has no exact size hint, but a header.
fn content_length(response: &Response) -> u64 {
    let in_header = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(in_header).unwrap_or(0)
}

#[cfg(test)]
pub mod tests;
