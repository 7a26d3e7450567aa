//! HTTP client of the Kubernetes API: authentication, deadlines and error statuses. Knows no resource types.

use std::time::Duration;

use corro_base::error_chain;
use corro_client::{Identity, Trust};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::credential::Credential;
use super::kubeconfig::{ClusterConfig, FileOrData};

/// Time limit for the start of a response, and for a whole one that is not a watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A line of a watch is one object, and etcd accepts only a few MiB.
const MAX_LINE_BYTES: usize = 16 << 20;

pub struct ApiClient {
    http: reqwest::Client,
    base: Url,
    credential: Credential,
}

#[derive(Debug, thiserror::Error)]
pub enum KubeApiError {
    /// Message of the API and the HTTP status.
    #[error("{0}")]
    Status(String, u16),
    #[error("{0}")]
    Failed(String),
    #[error("no response within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
}

/// A request. Path segments and query values are percent-encoded when it is sent.
pub struct ApiRequest<'a> {
    pub method: Method,
    pub path: &'a [&'a str],
    pub query: &'a [(&'a str, &'a str)],
    pub body: Option<Vec<u8>>,
}

impl ApiClient {
    /// Reads the certificate files that the configuration names. Does not connect.
    pub fn new(config: ClusterConfig) -> Result<Self, String> {
        let invalid = || format!("'{}' is not the URL of an API server", config.server);
        let base = Url::parse(&config.server).map_err(|_| invalid())?;
        let host = base.host_str().filter(|_| matches!(base.scheme(), "http" | "https")).ok_or_else(invalid)?;
        let ca = config.ca.as_ref().map(FileOrData::read).transpose()?;
        let trust = match &ca {
            Some(pem) => Trust::Pem(String::from_utf8_lossy(pem).into_owned()),
            None if base.scheme() == "https" => Trust::System,
            None => Trust::none(),
        };
        let client_cert = config.client_cert.as_ref();
        let identity =
            client_cert.map(|(certificate, key)| Ok::<_, String>((certificate.read()?, key.read()?))).transpose()?;
        let identity = identity.as_ref().map(|(certificates, key)| Identity { certificates, key });
        let tls = trust.client_config_of(identity).map_err(|error| error_chain::join(&error))?;
        let http = corro_client::pool(host, tls).map_err(|error| error_chain::join(&error))?;
        let cluster = serde_json::json!({
            "server": config.server, "certificate-authority-data": ca.map(ByteString),
        });
        Ok(Self { http, base, credential: Credential::new(config.auth, cluster) })
    }

    /// Sends a request and parses the whole response.
    pub async fn call<T: DeserializeOwned>(&self, request: ApiRequest<'_>) -> Result<T, KubeApiError> {
        let response = self.open(request).await?;
        let body = with_timeout(response.bytes()).await?;
        serde_json::from_slice(&body)
            .map_err(|error| KubeApiError::Failed(format!("cannot parse the response: {error}")))
    }

    /// Sends a request and returns when the head of a successful response has arrived.
    pub async fn open(&self, request: ApiRequest<'_>) -> Result<Response, KubeApiError> {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http has a path").pop_if_empty().extend(request.path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        let mut builder = self.http.request(request.method, url).header(ACCEPT, "application/json");
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        let builder = self.credential.authorize(builder).await.map_err(KubeApiError::Failed)?;
        let response = with_timeout(builder.send()).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED {
            self.credential.discard_token().await;
        }
        let body: Option<Status> = serde_json::from_slice(&with_timeout(response.bytes()).await?).ok();
        Err(KubeApiError::from_status(body.unwrap_or_default(), status.as_u16()))
    }
}

impl KubeApiError {
    /// The API's message, else its reason, else the HTTP status.
    pub fn from_status(body: Status, status: u16) -> Self {
        let text = [body.message, body.reason].into_iter().flatten().find(|text| !text.is_empty());
        KubeApiError::Status(text.unwrap_or_else(|| format!("status {status}")), status)
    }
}

impl FileOrData {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            FileOrData::Data(bytes) => Ok(bytes.clone()),
            FileOrData::File(file) => {
                std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
            }
        }
    }
}

/// Reads the lines of a streaming response.
pub struct LineReader {
    response: Response,
    buffer: Vec<u8>,
    /// Length of the prefix of `buffer` that is known to contain no newline.
    searched: usize,
}

impl LineReader {
    pub fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new(), searched: 0 }
    }

    /// The next line; `None` at the end of the response, where an incomplete line is dropped. Silence for `max_silence` beyond the request timeout
    /// is an error.
    pub async fn next(&mut self, max_silence: Duration) -> Result<Option<Vec<u8>>, KubeApiError> {
        loop {
            if let Some(idx) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + idx + 1);
                self.searched = 0;
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(KubeApiError::Failed(format!(
                    "a line of the response is longer than {} MiB",
                    MAX_LINE_BYTES >> 20
                )));
            }
            match tokio::time::timeout(REQUEST_TIMEOUT + max_silence, self.response.chunk()).await {
                Err(_) => return Err(KubeApiError::TimedOut),
                Ok(chunk) => match chunk.map_err(transport_error)? {
                    Some(chunk) => self.buffer.extend_from_slice(&chunk),
                    None => return Ok(None),
                },
            }
        }
    }
}

/// Serializes the body of a request.
pub fn to_json(object: &impl Serialize) -> Result<Vec<u8>, KubeApiError> {
    serde_json::to_vec(object).map_err(|error| KubeApiError::Failed(error.to_string()))
}

async fn with_timeout<T>(answer: impl Future<Output = reqwest::Result<T>>) -> Result<T, KubeApiError> {
    tokio::time::timeout(REQUEST_TIMEOUT, answer).await.map_err(|_| KubeApiError::TimedOut)?.map_err(transport_error)
}

fn transport_error(error: reqwest::Error) -> KubeApiError {
    KubeApiError::Failed(error_chain::join(&error.without_url()))
}
