//! Long-running operations: what to ask after the first answer, and how often. Entered through `Client::start`,
//! `Client::wait` and `Client::run`. Follows the three styles of Azure's resource manager: `Azure-AsyncOperation`,
//! `Location`, and a resource that says it is still being created.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use corro_model::ApiError;
use corro_model::error::ErrorBody;
use corro_model::ops::{Method as OperationMethod, Operation};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::ClientError;
use crate::client::{Client, Values, accept, decode};
use crate::transport::Answer;

/// When the server names no pause.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// `Retry-After: 0` means at once, but not in a hot loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// An operation the server has accepted.
#[derive(Debug)]
pub struct Pending<O: Operation> {
    /// The resource's own URL, read when an operation that makes one has ended.
    resource_url: String,
    next: Next,
    operation: PhantomData<fn() -> O>,
}

#[derive(Debug)]
enum Next {
    /// Ended already; the answer has the result.
    Done(Answer),
    /// Ask `url` after `pause`.
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

    /// Waits for the end. For an operation that makes a resource the answer is that resource.
    pub async fn wait<O: Operation>(&self, pending: Pending<O>) -> Result<O::Response, ClientError> {
        let mut next = pending.next;
        loop {
            let (poll, url, pause) = match next {
                Next::Done(answer) => return decode(O::ID, &answer),
                Next::Ask { poll, url, pause } => (poll, url, pause),
            };
            tokio::time::sleep(pause).await;
            let answer = accept(self.follow(Method::GET, &url, Bytes::new()).await?)?;
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
                        Next::Done(accept(self.follow(Method::GET, &pending.resource_url, Bytes::new()).await?)?)
                    }
                    Outcome::Succeeded => Next::Done(Answer { body: Bytes::new(), ..answer }),
                },
            };
        }
    }

    /// `start` and `wait`.
    pub async fn run<O: Operation>(&self, path: &Values<'_>, request: &O::Request) -> Result<O::Response, ClientError> {
        let pending = self.start::<O>(path, request).await?;
        self.wait(pending).await
    }
}

fn first_step<O: Operation>(answer: Answer, resource_url: &str) -> Next {
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

fn is_being_created(answer: &Answer) -> bool {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["properties"]["provisioningState"]
        .as_str()
        .is_some_and(|state| !["succeeded", "failed", "canceled"].iter().any(|end| state.eq_ignore_ascii_case(end)))
}

fn pause_of(answer: &Answer) -> Duration {
    let seconds = answer.header("retry-after").and_then(|value| value.trim().parse().ok());
    seconds.map_or(DEFAULT_PAUSE, Duration::from_secs).max(SHORTEST_PAUSE)
}

enum Outcome {
    InProgress,
    Succeeded,
}

fn async_outcome(answer: &Answer) -> Result<Outcome, ClientError> {
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
        // The operation's own status is 200; its failure is the server's word all the same.
        Some(error) => ApiError { status: 409, code: error.code, message: error.message, target: error.target },
        None => ApiError::new(409, "OperationFailed", format!("the operation ended as '{status}' without a reason")),
    };
    Err(ClientError::Api(failed))
}
