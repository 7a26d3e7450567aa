//! One HTTP exchange. Entered by every other room of this crate; knows bytes, headers and broken connections, and no
//! operation. Never follows a redirect: a login must not travel where a server points.

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, redirect};
use rustls::ClientConfig;

use crate::{ClientError, Trust, journal};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence in the middle of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(100);
/// The server gives up a connection without a request after 30 s; one taken up in that very moment would break.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection pool for one server.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    server: String,
}

/// A whole answer in memory.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Connections to `host`, of whatever service: a login does not follow where it points, and nobody waits for ever.
pub fn pool(host: &str, tls: ClientConfig) -> reqwest::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("corro/", env!("CARGO_PKG_VERSION")));
    if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
        // A proxy from the environment cannot know what this machine's loopback is.
        builder = builder.no_proxy();
    }
    builder.build()
}

impl Transport {
    /// `server` is `http://host:port` or `https://host:port`, with nothing behind it.
    pub fn new(server: &str, trust: &Trust) -> Result<Transport, ClientError> {
        let invalid = || ClientError::InvalidServer { value: server.to_owned() };
        let url = reqwest::Url::parse(server).map_err(|_| invalid())?;
        let host = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")).ok_or_else(invalid)?;
        // The system's authorities are not even read for a server without TLS: there may be none.
        let tls = if url.scheme() == "https" { trust.client_config() } else { Trust::nobody().client_config() }?;
        let http = pool(host, tls).map_err(|source| ClientError::Unreachable { server: server.to_owned(), source })?;
        Ok(Transport { http, server: server.trim_end_matches('/').to_owned() })
    }

    /// The same pool, for another name of the server.
    pub fn at(self, server: String) -> Transport {
        Transport { server, ..self }
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends and returns as soon as the head of the answer is there.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, ClientError> {
        journal::sent(&method, url, &body);
        let mut request = self.http.request(method, url).body(body);
        for (name, value) in headers {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) else {
                return Err(ClientError::InvalidHeader { name: (*name).to_owned() });
            };
            request = request.header(name, value);
        }
        let began = Instant::now();
        let response = request.send().await.map_err(|source| self.classify(source))?;
        journal::answered(response.status(), response.headers(), began.elapsed());
        Ok(response)
    }

    /// Sends and reads the whole answer.
    pub async fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let response = self.send(method, url, headers, body).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|source| self.classify(source))?;
        journal::read(&body);
        Ok(Answer { status, headers, body })
    }

    /// The next piece of a streamed body.
    pub async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, ClientError> {
        response.chunk().await.map_err(|source| self.classify(source))
    }

    fn classify(&self, source: reqwest::Error) -> ClientError {
        let server = self.server.clone();
        // The address stands in our own message; with a link it would also carry a signature.
        let source = source.without_url();
        if let Some(reason) = tls_error(&source) {
            return match reason {
                rustls::Error::InvalidMessage(_) => ClientError::NotTls { server },
                reason => ClientError::Untrusted { server, source: reason.clone() },
            };
        }
        if source.is_connect() {
            ClientError::Unreachable { server, source }
        } else {
            ClientError::Broken { server, source }
        }
    }
}

/// What TLS itself had against a connection, somewhere below `error`.
pub fn tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An I/O error hides the error it carries from `source`.
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match carried {
            Some(carried) => Some(carried),
            None => error.source(),
        };
    }
    None
}
