//! HTTP endpoints of the server. Each translates one protocol and decides nothing. All requests arrive at [`Api::handle`], which
//! routes them: storage, dashboard, login, agents, or the resource manager. Deny by default: a request without credentials gets
//! 401 before anything is looked up.

mod arm;
mod arm_request;
mod conn_threads;
mod events;
mod health;
mod listener;
mod login;
pub mod rate_limit;
mod request_head;
mod request_span;
mod response;
mod router;
pub mod session_revocation;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use corro_file_service::{AddressStyle, CredentialSink, FileService};
use corro_model::ApiError;
use corro_model::events::EVENTS_PATH;
use corro_model::host::{HOST_JOIN_PATH, HOST_PATH, HostCredential, HostJoinRequest, HostReport};
use corro_model::names::{NameKind, check_name};
use corro_model::node::{
    CONNECT_PATH, INSTANCE_HEADER, JOIN_PATH, JoinRequest, MOUNT_TOKENS_PATH, MountTokenRequest, NodeCredential,
    PROTOCOL_HEADER, WHEELS_PATH, parse_bearer, understands,
};
use corro_model::ops::{AccountsListKeys, JobsListOutputFiles, Operation, SharesLink};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Body as _;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use self::health::{HEALTH_PATH, METRICS_PATH, READY_PATH, RequestIds, classify_route};
use self::login::LoginRoute;
use self::rate_limit::{Decision, RateKey, RateLimits};
use self::request_span::{RequestSpan, SpanPrincipal};
use self::response::{error_response, json_response};
use self::router::Router;
use self::session_revocation::{ConnectionRegistry, RequestAuth};
use crate::app::App;
use crate::app::access::caller::{Caller, ClientProgram};
use crate::app::history::audit::{AuditLog, AuditedRequest};
use crate::gateway::{Gateway, MAX_MESSAGE_BYTES};
use crate::{dashboard, docs};

pub use listener::{HttpService, serve};

/// Largest body of a resource-manager request.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Read size when a wheel is sent.
const WHEEL_CHUNK_BYTES: usize = 256 * 1024;

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

/// A refused request, and its caller as far as known.
struct DeniedRequest {
    caller: Option<String>,
    error: ApiError,
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

/// Serves the storage protocols only: every request needs an account key or a SAS URL. For [`crate::FileServer`].
#[derive(Clone)]
pub struct FileServiceOnly(pub FileService);

impl HttpService for FileServiceOnly {
    async fn handle(&self, request: Request) -> Response {
        // The empty name is never an account, so such requests are refused.
        let (account, style) = account_of(&request).unwrap_or((String::new(), AddressStyle::Path));
        handle_file_request(&self.0, &account, style, request).await
    }
}

/// Tells the connection of the request which storage key it is signed with.
async fn handle_file_request(files: &FileService, account: &str, style: AddressStyle, request: Request) -> Response {
    let auth = request.extensions().get::<RequestAuth>().cloned();
    let sink = auth.as_ref().map(|auth| auth as &dyn CredentialSink);
    files.handle(account, style, request, sink).await
}

impl Api {
    pub fn new(app: App, gateway: Gateway, files: FileService, limits: Arc<RateLimits>, audit: AuditLog) -> Self {
        Self {
            app,
            gateway,
            files,
            router: Arc::new(arm::routes()),
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

    /// Audits the disclosure of keys and SAS URLs. Changes are audited with the change itself.
    fn audit_disclosure(&self, operation: &str, caller: &str, address: &str, path: &str) {
        let (caller, path) = (Some(caller), path.trim_end_matches('/'));
        let entry = AuditedRequest { caller, address, method: "POST", path, status: 200, code: "", tried: None };
        match operation {
            AccountsListKeys::ID => self.audit.record(&self.app.store, &entry),
            JobsListOutputFiles::ID | SharesLink::ID => self.audit.record_once(&self.app.store, &entry),
            _ => {}
        }
    }

    /// Handles a request without login, within the rate limit of its address.
    async fn unauthenticated(
        &self,
        address: &str,
        answer: impl Future<Output = Result<Response, ApiError>>,
    ) -> Result<Response, DeniedRequest> {
        self.count_unauthenticated(address)?;
        answer.await.map_err(without_caller)
    }

    fn count_unauthenticated(&self, address: &str) -> Result<(), DeniedRequest> {
        match self.limits.acquire(RateKey::Address(address.to_owned()), Instant::now()) {
            Decision::RetryAfter(wait) => {
                Err(without_caller(too_many_requests("this address", "--anonymous-rate", wait)))
            }
            Decision::Allowed { .. } => Ok(()),
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

    /// Authenticates the bearer token and applies the rate limit. Returns the caller, the requests left and the header that reports
    /// them.
    fn authenticate(&self, request: &Request, address: &str) -> Result<(Caller, u32, &'static str), DeniedRequest> {
        let caller = match self.caller_of_token(request) {
            Ok(caller) => caller,
            Err(error) => {
                self.count_unauthenticated(address)?;
                return Err(without_caller(error));
            }
        };
        // Reads are aborted when the token is revoked; a change takes effect, so it is also answered.
        if let (&Method::GET, Some(auth)) = (request.method(), request.extensions().get::<RequestAuth>()) {
            auth.set_principal(&caller.credential, caller.expires_at);
        }
        let id = caller.id.clone();
        SpanPrincipal::set(request, &id);
        let (asker, header): (RateKey, _) = match *request.method() {
            Method::GET | Method::HEAD => (RateKey::Reads(id.clone()), "x-ms-ratelimit-remaining-subscription-reads"),
            Method::DELETE => (RateKey::Writes(id.clone()), "x-ms-ratelimit-remaining-subscription-deletes"),
            _ => (RateKey::Writes(id.clone()), "x-ms-ratelimit-remaining-subscription-writes"),
        };
        let refused = |error: ApiError| DeniedRequest { caller: Some(id.clone()), error };
        let remaining = match self.limits.acquire(asker, Instant::now()) {
            Decision::Allowed { remaining } => remaining,
            Decision::RetryAfter(wait) => {
                return Err(refused(too_many_requests(&format!("the principal '{id}'"), "--rate", wait)));
            }
        };
        Ok((caller, remaining, header))
    }

    /// The caller of the request's bearer token.
    fn caller_of_token(&self, request: &Request) -> Result<Caller, ApiError> {
        let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
        let Some(token) = token else {
            let message = "Authentication failed. The 'Authorization' header is missing.";
            return Err(ApiError::unauthorized(message));
        };
        self.app.authenticate(token).ok_or_else(|| {
            let message = "The access token is not valid or has expired: log in again.";
            ApiError::new(401, "ExpiredAuthenticationToken", message)
        })
    }

    /// Exchanges an agent's join token for a node credential; 204 when no cluster needs a node now.
    async fn join(&self, request: Request) -> Result<Response, ApiError> {
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
    async fn join_host(&self, request: Request) -> Result<Response, ApiError> {
        check_protocol(&request)?;
        let body = arm_request::read_body(request.into_body(), 64 * 1024).await?;
        let request: HostJoinRequest =
            corro_model::job_file::parse(&body).map_err(|problem| ApiError::bad_body(problem.to_string()))?;
        Ok(json_response(StatusCode::OK, &self.gateway.join_host(request).await?))
    }

    /// Handles a host's report and returns the nodes it should run.
    async fn host(&self, request: Request) -> Result<Response, ApiError> {
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
    async fn wheels(&self, request: Request) -> Result<Response, ApiError> {
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
    async fn mount_token(&self, request: Request) -> Result<Response, ApiError> {
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
    fn node_credential(&self, request: &Request) -> Result<NodeCredential, ApiError> {
        let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credential = authorization
            .and_then(parse_bearer)
            .ok_or_else(|| ApiError::unauthorized("Authentication failed. A node's credential is needed."))?;
        self.gateway.check_credential(&credential)?;
        Ok(credential)
    }

    /// Upgrades a node's connection to a WebSocket.
    async fn connect(&self, request: Request) -> Result<Response, ApiError> {
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

fn is_path_or_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn without_caller(error: ApiError) -> DeniedRequest {
    DeniedRequest { caller: None, error }
}

fn too_many_requests(who: &str, flag: &str, wait: Duration) -> ApiError {
    let seconds = wait.as_secs_f64().ceil().max(1.0);
    let message = format!(
        "The number of requests of {who} exceeds what the server allows (see {flag}). Please try again after {seconds} seconds."
    );
    ApiError::new(429, "TooManyRequests", message)
}

/// Recognises the retired service's client library, also inside its CLI, by its user agent.
fn client_of(request: &Request, address: &str) -> ClientProgram {
    let agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match agent.split_whitespace().any(|product| product.starts_with("azure-mgmt-batchai/")) {
        true => ClientProgram::Azure(address.to_owned()),
        false => ClientProgram::Other,
    }
}

/// The client's IP address.
fn remote_address(request: &Request) -> String {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.ip().to_canonical().to_string())
}

/// Size of a response's body. A streamed body has no exact size hint, but a header.
fn content_length(response: &Response) -> u64 {
    let in_header = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(in_header).unwrap_or(0)
}

/// The storage account of a request, from its host or the first segment of its path (`account`, or `account.blob` for blobs).
/// Path prefixes of the resource manager are not valid account names.
fn account_of(request: &Request) -> Option<(String, AddressStyle)> {
    let in_path = || {
        let first = request.uri().path().split('/').nth(1).unwrap_or_default();
        let (account, style) = match first.strip_suffix(".blob") {
            Some(account) => (account, AddressStyle::BlobPath),
            None => (first, AddressStyle::Path),
        };
        corro_shares::is_account_name(account).then(|| (account.to_owned(), style))
    };
    account_in_host(request).or_else(in_path)
}

/// `mystorageaccount` of `Host: mystorageaccount.file.some.suffix`, or of `.blob.` for its containers.
fn account_in_host(request: &Request) -> Option<(String, AddressStyle)> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let (account, rest) = host.split_once('.')?;
    let style = match rest.split_once('.')?.0 {
        "file" => AddressStyle::Host,
        "blob" => AddressStyle::BlobHost,
        _ => return None,
    };
    check_name(NameKind::StorageAccount, account).is_ok().then(|| (account.to_owned(), style))
}

#[cfg(test)]
pub mod tests;
