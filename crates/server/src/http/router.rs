//! Router of the resource manager: finds a request's operation, checks rights, and calls the typed handler. The routes come from
//! `corro_model::ops`; no path is written here.

use std::any::TypeId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Response;
use corro_model::ApiError;
use corro_model::job_file;
use corro_model::ops::{BATCHAI_VERSION, Method, NoBody, Operation, match_path};
use corro_model::rbac::{Right, Scope, action_of, right_of};
use corro_model::storage::query_texts;
use http::header;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::MAX_BODY_BYTES;
use super::arm_request::{ArmRequest, base_url, read_body};
use super::response::{ArmResponse, BodySizeHint, warn};
use super::tunnels::websocket_upgrade;
use crate::app::App;

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>;
type RequestHandler = Box<dyn Fn(App, ArmRequest<Vec<u8>>) -> HandlerFuture + Send + Sync>;
type UpgradeHandler = Box<dyn Fn(App, ArmRequest<NoBody>, WebSocketUpgrade) -> HandlerFuture + Send + Sync>;

enum Handler {
    Request(RequestHandler),
    /// Upgrades the connection to a WebSocket.
    Upgrade(UpgradeHandler),
}

#[derive(Default)]
pub struct Router {
    routes: Vec<Route>,
}

struct Route {
    id: &'static str,
    right: Right,
    verb: Method,
    method: &'static str,
    template: &'static str,
    handler: Handler,
}

impl Router {
    /// Adds the handler of operation `O`.
    pub fn on<O, F, A>(mut self, _operation: O, handler: F) -> Self
    where
        O: Operation,
        F: Fn(App, ArmRequest<O::Request>) -> A + Send + Sync + Copy + 'static,
        A: Future<Output = Result<ArmResponse<O::Response>, ApiError>> + Send + 'static,
    {
        let size_hint = Arc::new(BodySizeHint::default());
        let handler: RequestHandler = Box::new(move |app, request| {
            let size_hint = size_hint.clone();
            Box::pin(async move {
                let (body, unknown) = parse_body::<O::Request>(&request.body)?;
                let ArmRequest { params, query, base_url, path, accept, .. } = request;
                let warnings = app.request.warnings.clone();
                let request = ArmRequest { params, query, body, base_url, path, accept };
                let mut response = handler(app, request).await?.into_response(&size_hint);
                let unknown = unknown.into_iter().map(|field| format!("unknown field '{field}' is ignored"));
                warn(response.headers_mut(), unknown.chain(warnings.drain()));
                Ok(response)
            })
        });
        self.add::<O>(Handler::Request(handler));
        self
    }

    /// Adds the handler of operation `O`, which upgrades its connection to a WebSocket.
    pub fn on_upgrade<O, F, A>(mut self, _operation: O, handler: F) -> Self
    where
        O: Operation<Request = NoBody>,
        F: Fn(App, ArmRequest<NoBody>, WebSocketUpgrade) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler: UpgradeHandler = Box::new(move |app, request, upgrade| Box::pin(handler(app, request, upgrade)));
        self.add::<O>(Handler::Upgrade(handler));
        self
    }

    fn add<O: Operation>(&mut self, handler: Handler) {
        self.routes.push(Route {
            id: O::ID,
            right: right_of(O::ID, O::METHOD),
            verb: O::METHOD,
            method: O::METHOD.as_str(),
            template: O::PATH,
            handler,
        });
    }

    #[cfg(test)]
    pub fn ids(&self) -> Vec<&'static str> {
        self.routes.iter().map(|route| route.id).collect()
    }

    /// Path template of the operation that a request is for.
    pub fn template(&self, method: &http::Method, path: &str) -> Option<&'static str> {
        let is_it = |route: &&Route| route.method == method.as_str() && match_path(route.template, path).is_some();
        self.routes.iter().find(is_it).map(|route| route.template)
    }

    /// Handles a request. Returns the operation's id and the response.
    pub async fn dispatch(&self, app: &App, request: Request) -> Result<(&'static str, Response), ApiError> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path();
        let matching: Vec<_> = self
            .routes
            .iter()
            .filter_map(|route| match_path(route.template, path).map(|params| (route, params)))
            .collect();
        let Some((route, params)) = matching.iter().find(|(route, _)| route.method == parts.method.as_str()) else {
            return Err(match matching.is_empty() {
                true => ApiError::new(404, "InvalidResourceType", format!("There is no resource at '{path}'")),
                false => {
                    let message = format!("{} is not allowed on '{path}'", parts.method);
                    ApiError::new(405, "MethodNotAllowed", message)
                }
            });
        };
        check_subscription(app, params)?;
        authorize(app, route, params, path)?;
        let query = query_texts(parts.uri.query().unwrap_or_default());
        check_version(route.template, &query)?;
        let (base_url, path) = (base_url(&parts), path.to_owned());
        let accept =
            parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*").to_owned();
        let params = params.clone();
        let response = match &route.handler {
            Handler::Request(handler) => {
                let body = read_body(body, MAX_BODY_BYTES).await?.to_vec();
                handler(app.clone(), ArmRequest { params, query, body, base_url, path, accept })
            }
            Handler::Upgrade(handler) => {
                let upgrade = websocket_upgrade(&mut parts).await?;
                let body = NoBody {};
                handler(app.clone(), ArmRequest { params, query, body, base_url, path, accept }, upgrade)
            }
        };
        Ok((route.id, response.await?))
    }
}

/// Checks the caller's right; the only place for all operations. Before any lookup: a caller without the right does not learn
/// whether the resource exists.
fn authorize(app: &App, route: &Route, params: &[(&'static str, String)], path: &str) -> Result<(), ApiError> {
    let operation = || params.iter().find(|(name, _)| *name == "operation").map_or("", |(_, id)| id.as_str());
    let scope = match route.right {
        Right::Poll => match app.operation_scope(operation()) {
            Some(scope) => scope,
            None => return Ok(()),
        },
        _ => Scope::of_path(path),
    };
    if app.request.caller.may(route.right, &scope) {
        return Ok(());
    }
    tracing::info!(caller = app.request.caller.id, operation = route.id, "a caller has no right to an operation");
    let (id, action) = (&app.request.caller.id, action_of(route.verb, route.template));
    let message = format!(
        "The client '{id}' with object id '{id}' does not have authorization to perform action '{action}' over scope '{}'.",
        path.trim_end_matches('/')
    );
    Err(ApiError::new(403, "AuthorizationFailed", message))
}

/// Checks the `api-version`. Batch AI has one version; other services accept any.
fn check_version(template: &str, query: &[(String, String)]) -> Result<(), ApiError> {
    let version = query.iter().find(|(name, _)| name.eq_ignore_ascii_case("api-version")).map(|(_, value)| value);
    let Some(version) = version.filter(|version| !version.is_empty()) else {
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(ApiError::new(400, "MissingApiVersionParameter", message));
    };
    if template.contains("/Microsoft.BatchAI/") && version != BATCHAI_VERSION {
        let message = format!(
            "No registered resource provider found for the namespace 'Microsoft.BatchAI' and API version '{version}'. The supported api-versions are '{BATCHAI_VERSION}'."
        );
        return Err(ApiError::new(400, "NoRegisteredProviderFound", message).about("api-version"));
    }
    Ok(())
}

fn check_subscription(app: &App, params: &[(&'static str, String)]) -> Result<(), ApiError> {
    match params.iter().find(|(name, _)| *name == "subscription") {
        Some((_, id)) if !id.eq_ignore_ascii_case(&app.installation.subscription) => {
            Err(ApiError::new(404, "SubscriptionNotFound", format!("The subscription '{id}' could not be found.")))
        }
        _ => Ok(()),
    }
}

/// Parses a body and lists its unknown fields. Operations without a body ignore what was sent.
fn parse_body<R: Serialize + DeserializeOwned + 'static>(body: &[u8]) -> Result<(R, Vec<String>), ApiError> {
    let body = if TypeId::of::<R>() == TypeId::of::<NoBody>() { b"{}" } else { body };
    let read: R = job_file::parse(body).or_else(|problem| without_nulls(body).ok_or(problem)).map_err(|problem| {
        let error = ApiError::bad_body(format!("The request's body is invalid: {problem}"));
        match problem.field {
            Some(field) => error.about(field),
            None => error,
        }
    })?;
    let mut unknown = Vec::new();
    if let (Ok(given), Ok(known)) = (serde_json::from_slice(body), serde_json::to_value(&read)) {
        if let Some(field) = job_file::list_for_object("", &given, &known) {
            let message = format!("The request's body is invalid: field '{field}' is a list, expected an object");
            return Err(ApiError::bad_body(message).about(field));
        }
        job_file::unknown_fields("", &given, &known, &mut unknown);
        unknown.retain(|field| !is_ignored_silently(field));
    }
    Ok((read, unknown))
}

/// Unknown fields without a warning: the service's clients send them back, or its own examples have them.
fn is_ignored_silently(field: &str) -> bool {
    let (parent, name) = field.rsplit_once('.').unwrap_or(("", field));
    match parent {
        "" => ["$schema", "id", "name", "type", "location", "tags", "kind", "etag"].contains(&name),
        _ => parent.contains("outputDirectories") && name == "type",
    }
}

/// Parses the body without its nulls, which the service treated as absent. `None` when there are none, or when it is still
/// invalid.
fn without_nulls<R: DeserializeOwned>(body: &[u8]) -> Option<R> {
    fn strip(value: &mut Value) -> bool {
        match value {
            Value::Object(members) => {
                let before = members.len();
                members.retain(|_, member| !member.is_null());
                let fewer = members.len() < before;
                members.values_mut().map(strip).fold(fewer, |any, some| any | some)
            }
            Value::Array(items) => items.iter_mut().map(strip).fold(false, |any, some| any | some),
            _ => false,
        }
    }
    let mut given: Value = serde_json::from_slice(body).ok()?;
    strip(&mut given).then(|| job_file::parse(given.to_string().as_bytes()).ok())?
}
