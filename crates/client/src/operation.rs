//! Long-running operations: which URL to poll after the first response, and how often. Implements the three styles of
//! Azure Resource Manager: `Azure-AsyncOperation`, `Location`, and a resource whose state says that it is still being
//! created. Waits for a server that restarts meanwhile.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corro_model::ApiError;
use corro_model::error::ErrorBody;
use corro_model::ops::{Method as OperationMethod, Operation};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::ClientError;
use crate::client::{Client, Values, decode};
use crate::response::{HttpResponse, check_status};

/// Poll interval without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Minimum poll interval: `Retry-After: 0` must not become a busy loop.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// How long an unreachable server is waited for.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between attempts to reach the server.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(300);

/// Operation that the server has accepted.
#[derive(Debug)]
pub struct Pending<O: Operation> {
    /// URL of the resource, read after an operation that creates one.
    resource_url: String,
    next: Next,
    operation: PhantomData<fn() -> O>,
}

#[derive(Debug)]
enum Next {
    /// Already ended; the response has the result.
    Done(HttpResponse),
    /// Poll `url` after `pause`.
    Ask { poll: Poll, url: String, pause: Duration },
}

#[derive(Clone, Copy, Debug)]
enum Poll {
    AsyncOperation,
    Location,
    Resource,
}

impl Client {
    /// Sends the first request of an operation.
    pub async fn start<O: Operation>(
        &self,
        path: &Values<'_>,
        request: &O::Request,
    ) -> Result<Pending<O>, ClientError> {
        let resource_url = self.url_of::<O>(path, &[]);
        let answer = self.ask::<O>(path, &[], request).await?;
        let next = first_step::<O>(answer, &resource_url);
        Ok(Pending { resource_url, next, operation: PhantomData })
    }

    /// Waits for the end. An operation that creates a resource returns it.
    pub async fn wait<O: Operation>(&self, pending: Pending<O>) -> Result<O::Response, ClientError> {
        let mut next = pending.next;
        let mut outage = Outage::default();
        loop {
            let (poll, url, pause) = match next {
                Next::Done(answer) => {
                    if makes_resource::<O>() {
                        check_made(&answer)?;
                    }
                    return decode(O::ID, &answer);
                }
                Next::Ask { poll, url, pause } => (poll, url, pause),
            };
            tokio::time::sleep(pause).await;
            let answer = self.poll(&url, &mut outage).await?;
            next = match poll {
                Poll::Location if answer.status == StatusCode::ACCEPTED => {
                    let url = answer.header("location").map_or(url, str::to_owned);
                    Next::Ask { poll, url, pause: pause_of(&answer) }
                }
                Poll::Location => Next::Done(answer),
                Poll::Resource if is_being_created(&answer) => Next::Ask { poll, url, pause: pause_of(&answer) },
                Poll::Resource => Next::Done(answer),
                Poll::AsyncOperation => match async_outcome(&answer)? {
                    Outcome::InProgress => Next::Ask { poll, url, pause: pause_of(&answer) },
                    Outcome::Succeeded if makes_resource::<O>() => {
                        Next::Done(self.poll(&pending.resource_url, &mut outage).await?)
                    }
                    Outcome::Succeeded => Next::Done(HttpResponse { body: Bytes::new(), ..answer }),
                },
            };
        }
    }

    /// `start` and `wait`.
    pub async fn run<O: Operation>(&self, path: &Values<'_>, request: &O::Request) -> Result<O::Response, ClientError> {
        let pending = self.start::<O>(path, request).await?;
        self.wait(pending).await
    }

    /// Polls once, and retries while the server is unreachable.
    async fn poll(&self, url: &str, outage: &mut Outage) -> Result<HttpResponse, ClientError> {
        loop {
            match self.follow(Method::GET, url, Bytes::new()).await.and_then(check_status) {
                Ok(answer) => {
                    outage.since = None;
                    return Ok(answer);
                }
                Err(error) if error.is_transient() && outage.is_bearable(Instant::now()) => {
                    if !std::mem::replace(&mut outage.noticed, true) {
                        self.notify_unreachable();
                    }
                    tokio::time::sleep(UNREACHABLE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Period during which the server is unreachable.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    /// The user was notified; once is enough.
    noticed: bool,
}

impl Outage {
    /// Called at every failure; false once the period is too long.
    fn is_bearable(&mut self, now: Instant) -> bool {
        now.duration_since(*self.since.get_or_insert(now)) < RECONNECT_TIMEOUT
    }
}

fn first_step<O: Operation>(answer: HttpResponse, resource_url: &str) -> Next {
    let link = |name: &str| answer.header(name).map(str::to_owned);
    let pause = pause_of(&answer);
    if let Some(url) = link("azure-asyncoperation") {
        return Next::Ask { poll: Poll::AsyncOperation, url, pause };
    }
    if answer.status == StatusCode::ACCEPTED
        && let Some(url) = link("location")
    {
        return Next::Ask { poll: Poll::Location, url, pause };
    }
    if makes_resource::<O>() && (answer.status == StatusCode::ACCEPTED || is_being_created(&answer)) {
        return Next::Ask { poll: Poll::Resource, url: resource_url.to_owned(), pause };
    }
    Next::Done(answer)
}

fn makes_resource<O: Operation>() -> bool {
    matches!(O::METHOD, OperationMethod::Put | OperationMethod::Patch)
}

/// Terminal provisioning states.
const TERMINAL_STATES: [&str; 3] = ["succeeded", "failed", "canceled"];

fn is_being_created(answer: &HttpResponse) -> bool {
    provisioning_state(answer).is_some_and(|state| !TERMINAL_STATES.contains(&state.as_str()))
}

/// A resource in a failed state is an error, whatever the HTTP status.
fn check_made(answer: &HttpResponse) -> Result<(), ClientError> {
    match provisioning_state(answer) {
        Some(state) if TERMINAL_STATES[1..].contains(&state.as_str()) => {
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let reason = body["properties"]["errors"][0]["message"].as_str().unwrap_or("the server gives no reason");
            let message = format!("the resource could not be created: its state is '{state}' ({reason})");
            Err(ClientError::Api(ApiError::new(409, "OperationFailed", message)))
        }
        _ => Ok(()),
    }
}

fn provisioning_state(answer: &HttpResponse) -> Option<String> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(body["properties"]["provisioningState"].as_str()?.to_ascii_lowercase())
}

fn pause_of(answer: &HttpResponse) -> Duration {
    let seconds = answer.header("retry-after").and_then(|value| value.trim().parse().ok());
    seconds.map_or(DEFAULT_PAUSE, Duration::from_secs).max(MIN_PAUSE)
}

enum Outcome {
    InProgress,
    Succeeded,
}

fn async_outcome(answer: &HttpResponse) -> Result<Outcome, ClientError> {
    #[derive(Deserialize)]
    struct Status {
        status: String,
        error: Option<ErrorBody>,
    }
    let Status { status, error } = decode("Operations_Result", answer)?;
    if status.eq_ignore_ascii_case("succeeded") {
        return Ok(Outcome::Succeeded);
    }
    if !status.eq_ignore_ascii_case("failed") && !status.eq_ignore_ascii_case("canceled") {
        return Ok(Outcome::InProgress);
    }
    let failed = match error {
        // The HTTP status of the operation is 200; its failure is still an error of the server.
        Some(error) => ApiError { status: 409, code: error.code, message: error.message, target: error.target },
        None => ApiError::new(409, "OperationFailed", format!("the operation ended as '{status}' without a reason")),
    };
    Err(ClientError::Api(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_away_for_a_minute_at_a_time() {
        let mut outage = Outage::default();
        let began = Instant::now();
        assert!(outage.is_bearable(began) && outage.is_bearable(began + RECONNECT_TIMEOUT - Duration::from_millis(1)));
        assert!(!outage.is_bearable(began + RECONNECT_TIMEOUT));
        outage.since = None;
        assert!(outage.is_bearable(began + RECONNECT_TIMEOUT));
    }
}
