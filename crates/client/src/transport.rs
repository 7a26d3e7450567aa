//! HTTP exchange with one server: connections, headers and errors, no API operations. Never follows a redirect, because
//! credentials must not be sent where a server points.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Response, redirect};
use rustls::ClientConfig;

use crate::http_limits::{CONNECT_TIMEOUT, IDLE_TIMEOUT, READ_TIMEOUT, USER_AGENT};
use crate::http1_conn::{ConnError, Http1Connection};
use crate::response::HttpResponse;
use crate::{ClientError, Trust, http_log};

/// Buffer that is allocated before a body arrives; larger bodies grow it.
const MAX_PREALLOCATED_BODY: u64 = 8 << 20;

/// Connection pool for one server, or one dedicated connection.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    server: String,
    /// TLS configuration if the server is `https`.
    tls: Option<Arc<ClientConfig>>,
    connection: Option<Arc<Http1Connection>>,
}

/// Connection pool for `host` without redirects and with timeouts; for any service.
pub fn pool(host: &str, tls: ClientConfig) -> reqwest::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT);
    if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
        // A proxy from the environment cannot reach this machine's loopback.
        builder = builder.no_proxy();
    }
    builder.build()
}

impl Transport {
    /// `server` is `http://host:port` or `https://host:port` without a path.
    pub fn new(server: &str, trust: &Trust) -> Result<Transport, ClientError> {
        let invalid = || ClientError::InvalidServer { value: server.to_owned() };
        let url = reqwest::Url::parse(server).map_err(|_| invalid())?;
        let host = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")).ok_or_else(invalid)?;
        // System authorities are not read for plain HTTP: there may be none.
        let tls = if url.scheme() == "https" { trust.client_config() } else { Trust::none().client_config() }?;
        let kept = (url.scheme() == "https").then(|| Arc::new(tls.clone()));
        let unusable =
            |source: reqwest::Error| ClientError::Unreachable { server: server.to_owned(), source: source.into() };
        let http = pool(host, tls).map_err(unusable)?;
        Ok(Transport { http, server: server.trim_end_matches('/').to_owned(), tls: kept, connection: None })
    }

    /// The same server with one dedicated HTTP/1 connection, for a thread that sends one request at a time.
    pub fn dedicated(&self) -> Result<Transport, ClientError> {
        let invalid = || ClientError::InvalidServer { value: self.server.clone() };
        let url = reqwest::Url::parse(&self.server).map_err(|_| invalid())?;
        let (host, port) = url.host_str().zip(url.port_or_known_default()).ok_or_else(invalid)?;
        let connection = Http1Connection::new(host, port, self.tls.clone()).map_err(|_| invalid())?;
        Ok(Transport { connection: Some(Arc::new(connection)), ..self.clone() })
    }

    /// The same pool under another name of the server.
    pub fn at(self, server: String) -> Transport {
        Transport { server, ..self }
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request and returns once the response head has arrived.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, ClientError> {
        http_log::sent(&method, url, &body);
        let mut request = self.http.request(method, url).body(body);
        for (name, value) in headers {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) else {
                return Err(ClientError::InvalidHeader { name: (*name).to_owned() });
            };
            request = request.header(name, value);
        }
        let began = Instant::now();
        let response = request.send().await.map_err(|source| self.classify(source))?;
        http_log::answered(response.status(), response.headers(), began.elapsed());
        Ok(response)
    }

    /// Sends a request and reads the whole response.
    pub async fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse, ClientError> {
        if let Some(connection) = &self.connection {
            return self.exchange_alone(connection, method, url, headers, &body).await;
        }
        let response = self.send(method, url, headers, body).await?;
        let answer = self.whole(response).await?;
        http_log::read(&answer.body);
        Ok(answer)
    }

    /// Reads the rest of a response.
    pub async fn whole(&self, mut response: Response) -> Result<HttpResponse, ClientError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::with_capacity(response.content_length().unwrap_or(0).min(MAX_PREALLOCATED_BODY) as usize);
        while let Some(chunk) = self.chunk(&mut response).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, headers, body: body.into() })
    }

    async fn exchange_alone(
        &self,
        connection: &Http1Connection,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &Bytes,
    ) -> Result<HttpResponse, ClientError> {
        let is_odd = |(_, value): &&(&str, &str)| HeaderValue::try_from(*value).is_err();
        if let Some((name, _)) = headers.iter().find(is_odd) {
            return Err(ClientError::InvalidHeader { name: (*name).to_owned() });
        }
        http_log::sent(&method, url, body);
        let began = Instant::now();
        let authority = self.server.split_once("://").map_or(self.server.as_str(), |(_, authority)| authority);
        let target = url.strip_prefix(&self.server).unwrap_or(url);
        let answer = connection
            .exchange(&method, (authority, target), headers, body)
            .await
            .map_err(|failure| self.failed(failure))?;
        http_log::answered(answer.status, &answer.headers, began.elapsed());
        http_log::read(&answer.body);
        Ok(answer)
    }

    /// Next chunk of a streamed body.
    pub async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, ClientError> {
        response.chunk().await.map_err(|source| self.classify(source))
    }

    fn classify(&self, source: reqwest::Error) -> ClientError {
        let server = self.server.clone();
        // Our own message has the server; the URL may contain a signature.
        let source = source.without_url();
        match tls_error(&source) {
            Some(reason) => self.distrusted(reason),
            None if source.is_connect() => ClientError::Unreachable { server, source: source.into() },
            None => ClientError::Broken { server, source: source.into() },
        }
    }

    fn failed(&self, failure: ConnError) -> ClientError {
        let server = self.server.clone();
        let (ConnError::Connect(error) | ConnError::Exchange(error)) = &failure;
        if let Some(reason) = tls_error(error) {
            return self.distrusted(reason);
        }
        match failure {
            ConnError::Connect(error) => ClientError::Unreachable { server, source: error.into() },
            ConnError::Exchange(error) => ClientError::Broken { server, source: error.into() },
        }
    }

    fn distrusted(&self, reason: &rustls::Error) -> ClientError {
        let server = self.server.clone();
        match reason {
            rustls::Error::InvalidMessage(_) => ClientError::NotTls { server },
            reason => ClientError::Untrusted { server, source: reason.clone() },
        }
    }
}

/// TLS error in the source chain of `error`.
pub fn tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `source` of an I/O error skips the error that it wraps.
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match carried {
            Some(carried) => Some(carried),
            None => error.source(),
        };
    }
    None
}
