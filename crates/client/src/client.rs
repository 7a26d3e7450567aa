//! Requests of the API's operation table: builds paths, authenticates, sends, pages and decodes errors. Long-running
//! operations continue in `operation`.

use std::any::TypeId;
use std::sync::Arc;

use bytes::Bytes;
use corro_model::Secret;
use corro_model::batchai::Page;
use corro_model::ops::{NoBody, Operation, path_of};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::login::Login;
use crate::response::{HttpResponse, MAX_RETRY_LATER, check_status, retry_delay};
use crate::transport::Transport;
use crate::{ClientError, Profile};

const QUERY_ESCAPES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Values for the `{parameters}` of a path or for its query.
pub type Values<'a> = [(&'a str, &'a str)];

/// Cheap to clone; clones share connections and login.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    subscription: String,
    on_absence: Option<fn()>,
}

#[derive(Debug)]
struct Shared {
    transport: Transport,
    login: Login,
}

impl Client {
    pub fn new(profile: &Profile) -> Result<Client, ClientError> {
        let shared =
            Shared { transport: Transport::new(&profile.server, &profile.trust())?, login: Login::new(profile) };
        Ok(Client { shared: Arc::new(shared), subscription: profile.subscription.clone(), on_absence: None })
    }

    /// The same client; `notice` is called when a long wait finds the server unreachable and goes on waiting.
    pub fn with_absence_notice(self, notice: fn()) -> Client {
        Client { on_absence: Some(notice), ..self }
    }

    pub(crate) fn notify_unreachable(&self) {
        if let Some(notice) = self.on_absence {
            notice();
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.shared.transport
    }

    pub fn server(&self) -> &str {
        self.shared.transport.server()
    }

    pub fn subscription(&self) -> &str {
        &self.subscription
    }

    /// Token of this login, for a browser page.
    pub async fn token(&self) -> Result<Secret, ClientError> {
        self.shared.login.token(&self.shared.transport, None).await
    }

    /// Sends one request.
    pub async fn call<O: Operation>(
        &self,
        path: &Values<'_>,
        query: &Values<'_>,
        request: &O::Request,
    ) -> Result<O::Response, ClientError> {
        let answer = self.ask::<O>(path, query, request).await?;
        decode(O::ID, &answer)
    }

    /// Sends a request without body and query.
    pub async fn get<O: Operation<Request = NoBody>>(&self, path: &Values<'_>) -> Result<O::Response, ClientError> {
        self.call::<O>(path, &[], &NoBody {}).await
    }

    /// Same as `get`; `None` on 404.
    pub async fn find<O: Operation<Request = NoBody>>(
        &self,
        path: &Values<'_>,
    ) -> Result<Option<O::Response>, ClientError> {
        match self.get::<O>(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a HEAD request finds the resource.
    pub async fn exists<O: Operation<Request = NoBody>>(&self, path: &Values<'_>) -> Result<bool, ClientError> {
        match self.ask::<O>(path, &[], &NoBody {}).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All pages of a list.
    pub async fn list<O, T>(&self, path: &Values<'_>, query: &Values<'_>) -> Result<Vec<T>, ClientError>
    where
        O: Operation<Request = NoBody, Response = Page<T>>,
        T: DeserializeOwned,
    {
        let mut page = self.call::<O>(path, query, &NoBody {}).await?;
        let mut items = page.value;
        while let Some(link) = page.next_link {
            let answer = check_status(self.follow(method_of::<O>(), &link, Bytes::new()).await?)?;
            page = decode(O::ID, &answer)?;
            items.append(&mut page.value);
        }
        Ok(items)
    }

    pub(crate) async fn ask<O: Operation>(
        &self,
        path: &Values<'_>,
        query: &Values<'_>,
        request: &O::Request,
    ) -> Result<HttpResponse, ClientError> {
        let body = encode::<O>(request)?;
        check_status(self.authorized(method_of::<O>(), &self.url_of::<O>(path, query), body).await?)
    }

    pub(crate) fn url_of<O: Operation>(&self, path: &Values<'_>, query: &Values<'_>) -> String {
        // A subscription from the caller's full resource id takes precedence.
        let mut values = path.to_vec();
        values.push(("subscription", self.subscription.as_str()));
        let mut url = format!("{}{}?api-version={}", self.server(), path_of::<O>(&values), O::VERSION);
        for (name, value) in query {
            url.push_str(&format!("&{name}={}", utf8_percent_encode(value, &QUERY_ESCAPES)));
        }
        url
    }

    /// Follows a link from the server. Only its path and query are used: credentials never go to another server.
    pub(crate) async fn follow(&self, method: Method, link: &str, body: Bytes) -> Result<HttpResponse, ClientError> {
        let path =
            link.split_once("://").and_then(|(_, rest)| rest.find('/').map(|slash| &rest[slash..])).unwrap_or(link);
        self.authorized(method, &format!("{}{path}", self.server()), body).await
    }

    /// Opens a response whose body is streamed. A rejected token is renewed once.
    pub(crate) async fn open(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response, ClientError> {
        let Shared { transport, login } = &*self.shared;
        let mut refused: Option<Secret> = None;
        loop {
            let token = login.token(transport, refused.as_ref()).await?;
            let bearer = format!("Bearer {}", token.expose());
            let headers = [&[("authorization", bearer.as_str())][..], headers].concat();
            let response = transport.send(method.clone(), url, &headers, Bytes::new()).await?;
            if response.status() != StatusCode::UNAUTHORIZED || refused.is_some() {
                return Ok(response);
            }
            refused = Some(token);
        }
    }

    /// Sends with a bearer token. A rejected token is renewed once.
    async fn authorized(&self, method: Method, url: &str, body: Bytes) -> Result<HttpResponse, ClientError> {
        let Shared { transport, login } = &*self.shared;
        let mut refused: Option<Secret> = None;
        let mut told_to_wait = 0;
        loop {
            let token = login.token(transport, refused.as_ref()).await?;
            let bearer = format!("Bearer {}", token.expose());
            let headers = [
                ("authorization", bearer.as_str()),
                ("accept", "application/json"),
                ("content-type", "application/json; charset=utf-8"),
            ];
            let answer = transport.exchange(method.clone(), url, &headers, body.clone()).await?;
            if answer.status == StatusCode::TOO_MANY_REQUESTS && told_to_wait < MAX_RETRY_LATER {
                told_to_wait += 1;
                tokio::time::sleep(retry_delay(&answer)).await;
                continue;
            }
            if answer.status != StatusCode::UNAUTHORIZED || refused.is_some() {
                return Ok(answer);
            }
            refused = Some(token);
        }
    }
}

pub(crate) fn decode<T: DeserializeOwned>(operation: &'static str, answer: &HttpResponse) -> Result<T, ClientError> {
    let body: &[u8] = if answer.body.is_empty() { b"{}" } else { &answer.body };
    serde_json::from_slice(body).map_err(|source| ClientError::UnexpectedAnswer { operation, source })
}

fn encode<O: Operation>(request: &O::Request) -> Result<Bytes, ClientError> {
    if TypeId::of::<O::Request>() == TypeId::of::<NoBody>() {
        return Ok(Bytes::new());
    }
    to_json(request).map_err(|source| ClientError::UnexpectedAnswer { operation: O::ID, source })
}

fn to_json(value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(value).map(Bytes::from)
}

pub(crate) fn method_of<O: Operation>() -> Method {
    use corro_model::ops::Method as M;
    match O::METHOD {
        M::Get => Method::GET,
        M::Head => Method::HEAD,
        M::Put => Method::PUT,
        M::Patch => Method::PATCH,
        M::Post => Method::POST,
        M::Delete => Method::DELETE,
    }
}
