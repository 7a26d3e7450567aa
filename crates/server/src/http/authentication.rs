//! Authentication of requests by bearer token, and rate limits of principals and of addresses without login.

use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::Response;
use corro_model::ApiError;
use http::{Method, header};

use super::Api;
use super::connection::session_revocation::RequestAuth;
use super::rate_limit::{Decision, RateKey};
use super::request_span::SpanPrincipal;
use crate::app::access::caller::Caller;

/// A refused request, and its caller as far as known.
pub(super) struct DeniedRequest {
    pub(super) caller: Option<String>,
    pub(super) error: ApiError,
}

impl Api {
    /// Handles a request without login, within the rate limit of its address.
    pub(super) async fn unauthenticated(
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

    /// Authenticates the bearer token and applies the rate limit. Returns the caller, the requests left and the header that reports
    /// them.
    pub(super) fn authenticate(
        &self,
        request: &Request,
        address: &str,
    ) -> Result<(Caller, u32, &'static str), DeniedRequest> {
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
