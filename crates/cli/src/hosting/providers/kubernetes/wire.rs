//! One exchange with the Kubernetes API: the login, a deadline, and what the API says when it refuses. Knows no resource.

use std::time::Duration;

use corro_client::{Identity, Trust};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::kubeconfig::{Content, Way};
use super::login::Credential;

/// One answer may take this long.
const CALL: Duration = Duration::from_secs(15);

/// A line of a watch is one object, and no store takes one of more than a few MiB.
const LINE: usize = 16 << 20;

pub struct Wire {
    http: reqwest::Client,
    base: Url,
    credential: Credential,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Refused(String, u16),
    #[error("{0}")]
    Failed(String),
    #[error("no answer within {} s", CALL.as_secs())]
    TooSlow,
}

/// What is asked for. Names and values may hold anything.
pub struct Ask<'a> {
    pub method: Method,
    pub path: &'a [&'a str],
    pub query: &'a [(&'a str, &'a str)],
    pub body: Option<Vec<u8>>,
}

impl Wire {
    /// Reads the files that the way names; asks nobody.
    pub fn new(way: Way) -> Result<Self, String> {
        let wrong = || format!("'{}' is no address of an API server", way.server);
        let base = Url::parse(&way.server).map_err(|_| wrong())?;
        let host = base.host_str().filter(|_| matches!(base.scheme(), "http" | "https")).ok_or_else(wrong)?;
        let authority = way.authority.as_ref().map(Content::read).transpose()?;
        let trust = match &authority {
            Some(pem) => Trust::Pem(String::from_utf8_lossy(pem).into_owned()),
            None if base.scheme() == "https" => Trust::System,
            None => Trust::nobody(),
        };
        let identity = way.identity.as_ref();
        let identity = identity.map(|(shown, key)| Ok::<_, String>((shown.read()?, key.read()?))).transpose()?;
        let identity = identity.as_ref().map(|(certificates, key)| Identity { certificates, key });
        let tls = trust.client_config_of(identity).map_err(|error| chain(&error))?;
        let http = corro_client::pool(host, tls).map_err(|error| chain(&error))?;
        let cluster = serde_json::json!({
            "server": way.server, "certificate-authority-data": authority.map(ByteString),
        });
        Ok(Self { http, base, credential: Credential::new(way.login, cluster) })
    }

    /// Sends and reads the whole answer.
    pub async fn call<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, CallError> {
        let response = self.open(ask).await?;
        let body = in_time(response.bytes()).await?;
        serde_json::from_slice(&body)
            .map_err(|error| CallError::Failed(format!("its answer is not understood: {error}")))
    }

    /// Sends and returns when the answer has begun well.
    pub async fn open(&self, ask: Ask<'_>) -> Result<Response, CallError> {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http has a path").pop_if_empty().extend(ask.path);
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let mut request = self.http.request(ask.method, url).header(ACCEPT, "application/json");
        if let Some(body) = ask.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let request = self.credential.sign(request).await.map_err(CallError::Failed)?;
        let response = in_time(request.send()).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED {
            self.credential.was_refused().await;
        }
        let said: Option<Status> = serde_json::from_slice(&in_time(response.bytes()).await?).ok();
        Err(CallError::refused(said.unwrap_or_default(), status.as_u16()))
    }
}

impl CallError {
    /// What the API says of it, or else the status by itself.
    pub fn refused(said: Status, status: u16) -> Self {
        let text = [said.message, said.reason].into_iter().flatten().find(|text| !text.is_empty());
        CallError::Refused(text.unwrap_or_else(|| format!("status {status}")), status)
    }
}

impl Content {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Content::Here(bytes) => Ok(bytes.clone()),
            Content::In(file) => {
                std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
            }
        }
    }
}

/// The lines of an answer that goes on.
pub struct Lines {
    response: Response,
    read: Vec<u8>,
    /// So much of what was read holds no end of a line.
    searched: usize,
}

impl Lines {
    pub fn new(response: Response) -> Self {
        Self { response, read: Vec::new(), searched: 0 }
    }

    /// `None` at the end of the answer; what is left of a line that was cut there is nobody's. To be silent for longer than
    /// `patience` is a fault.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, CallError> {
        loop {
            if let Some(idx) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(self.searched + idx + 1);
                self.searched = 0;
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            self.searched = self.read.len();
            if self.read.len() > LINE {
                return Err(CallError::Failed(format!("a line of its answer is longer than {} MiB", LINE >> 20)));
            }
            match tokio::time::timeout(CALL + patience, self.response.chunk()).await {
                Err(_) => return Err(CallError::TooSlow),
                Ok(chunk) => match chunk.map_err(failed)? {
                    Some(chunk) => self.read.extend_from_slice(&chunk),
                    None => return Ok(None),
                },
            }
        }
    }
}

pub fn json(object: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(object).map_err(|error| CallError::Failed(error.to_string()))
}

async fn in_time<T>(answer: impl Future<Output = reqwest::Result<T>>) -> Result<T, CallError> {
    tokio::time::timeout(CALL, answer).await.map_err(|_| CallError::TooSlow)?.map_err(failed)
}

fn failed(error: reqwest::Error) -> CallError {
    CallError::Failed(chain(&error.without_url()))
}

/// The error and its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}
