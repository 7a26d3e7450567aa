//! Trace span of an HTTP request: continues the trace of the client's `traceparent` header, and returns its own position in the
//! response. Never contains a query, header or body: they hold signatures and secrets.

use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Method};

use super::client::remote_address;
use super::file_requests::account_of;
use super::health;
use super::router::Router;
use crate::app::monitoring::http_counters::Route;
use crate::traces::Traces;
use crate::traces::context::{Context, SpanId, TRACEPARENT, TraceId};
use crate::traces::span::{AttributeValue, Span, SpanKind, UnixNanos};

/// The authenticated principal, set by the handler.
#[derive(Clone, Default)]
pub struct SpanPrincipal(Arc<OnceLock<String>>);

impl SpanPrincipal {
    pub fn set(request: &Request, id: &str) {
        if let Some(principal) = request.extensions().get::<SpanPrincipal>() {
            let _ = principal.0.set(id.to_owned());
        }
    }
}

pub struct RequestSpan {
    context: Context,
    parent: Option<SpanId>,
    began: UnixNanos,
    method: Method,
    path: String,
    account: Option<String>,
    address: String,
    principal: SpanPrincipal,
}

impl RequestSpan {
    /// `None` when traces are off.
    pub fn begin(traces: &Traces, request: &mut Request) -> Option<RequestSpan> {
        let sampler = traces.sampler()?;
        let parent = request.headers().get(TRACEPARENT).and_then(|value| Context::parse(value.to_str().ok()?));
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        let context = Context { trace, span: SpanId::random(), sampled: sampler.should_sample(trace, parent.as_ref()) };
        let principal = SpanPrincipal::default();
        request.extensions_mut().insert(principal.clone());
        Some(RequestSpan {
            context,
            parent: parent.map(|parent| parent.span),
            began: UnixNanos::now(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            account: account_of(request).map(|(account, _)| account),
            address: remote_address(request),
            principal,
        })
    }

    pub fn end(self, traces: &Traces, router: &Router, response: &mut Response) {
        let header = HeaderValue::from_str(&self.context.to_string()).expect("digits");
        response.headers_mut().insert(TRACEPARENT, header);
        if self.context.sampled {
            traces.record(self.span(router, response.status().as_u16()));
        }
    }

    fn span(self, router: &Router, status: u16) -> Span {
        let route = self.route(router);
        let method = match self.method.as_str() {
            known @ ("GET" | "HEAD" | "PUT" | "POST" | "PATCH" | "DELETE" | "OPTIONS") => known.to_owned(),
            _ => "_OTHER".to_owned(),
        };
        let name = route.as_ref().map_or_else(|| method.clone(), |route| format!("{method} {route}"));
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("http.request.method", method.into()),
            ("http.response.status_code", i64::from(status).into()),
            ("client.address", self.address.into()),
        ];
        match self.account {
            // File names are user data.
            Some(account) => attributes.push(("corro.account", account.into())),
            None => attributes.push(("url.path", self.path.into())),
        }
        attributes.extend(route.map(|route| ("http.route", route.into())));
        attributes.extend(self.principal.0.get().map(|id| ("enduser.id", id.as_str().into())));
        let failure = (status >= 500).then(|| format!("{status}"));
        let Context { trace, span: id, .. } = self.context;
        let (kind, ended) = (SpanKind::Server, UnixNanos::now());
        Span { trace, id, parent: self.parent, name, kind, began: self.began, ended, attributes, failure }
    }

    /// The route as a template with placeholders, so that there are few.
    fn route(&self, router: &Router) -> Option<String> {
        if self.account.is_some() {
            return Some("/{account}/{path}".to_owned());
        }
        match health::classify_route(&self.method, &self.path) {
            Route::Pages => Some("/ui/{page}".to_owned()),
            Route::Watch | Route::Events => Some(self.path.clone()),
            Route::Nodes => Some("/corro/{node}".to_owned()),
            Route::Login => Some("/{login}".to_owned()),
            Route::Reads | Route::Writes => router.template(&self.method, &self.path).map(str::to_owned),
        }
    }
}
