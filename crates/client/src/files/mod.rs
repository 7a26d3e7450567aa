//! The file service of one storage account: shares, directories, files. Entered by the storage commands.
//! Every request is signed with the account's key or carries a shared access signature; neither is ever shown.
//!
//! Reading order: this file (who and where), `tree` (shares, directories, listings), `upload`, `download` and its
//! `draft`, `settings` (metadata and the like), `links`.

mod download;
mod draft;
mod links;
mod settings;
mod tree;
mod upload;

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use corro_model::storage::shared_key;
use corro_model::{ApiError, Secret, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Response};

use crate::transport::{Answer, Transport};
use crate::{ClientError, Trust, xml};

pub use download::{Download, DownloadRange};
pub use draft::Destination;
pub use settings::{ContentSettings, FileSettings, Metadata};
pub use tree::{Entry, Share};

const VERSION: &str = "2018-03-28";
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How often one range of a transfer is tried.
const TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// What a transfer reports: bytes done, bytes in all.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How a request proves that it may.
#[derive(Clone, Debug)]
pub enum Credential {
    /// An account key, as the service hands it out (base64).
    Key(Secret),
    /// A shared access signature: the query of a link, without the question mark.
    Sas(Secret),
}

#[derive(Clone, Debug)]
pub struct FileService {
    transport: Transport,
    /// The path before the share: `/account` in path style, nothing in host style.
    root: String,
    account: String,
    signer: Signer,
}

#[derive(Clone)]
enum Signer {
    Key(Vec<u8>),
    Sas(Secret),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// What the service says about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProperties {
    pub length: u64,
    pub etag: Option<String>,
    pub last_modified: Option<Timestamp>,
    pub content_type: Option<String>,
}

impl FileService {
    /// `endpoint` is the account's file endpoint: `http://127.0.0.1:8470/account` or `http://account.file.host:port`.
    pub fn new(endpoint: &str, account: &str, credential: Credential) -> Result<FileService, ClientError> {
        let invalid = || ClientError::InvalidServer { value: endpoint.to_owned() };
        let (scheme, rest) = endpoint.trim_end_matches('/').split_once("://").ok_or_else(invalid)?;
        let (host, root) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let signer = match credential {
            Credential::Key(key) => {
                Signer::Key(STANDARD.decode(key.expose().trim()).map_err(|_| ClientError::InvalidAccountKey)?)
            }
            Credential::Sas(query) => Signer::Sas(Secret::new(query.expose().trim_start_matches('?'))),
        };
        Ok(FileService {
            transport: Transport::new(&format!("{scheme}://{host}"), &Trust::System)?,
            root: root.to_owned(),
            account: account.to_owned(),
            signer,
        })
    }

    /// The same service, whose server is believed on other grounds than the system's.
    pub fn trusting(self, trust: &Trust) -> Result<FileService, ClientError> {
        Ok(FileService { transport: Transport::new(self.transport.server(), trust)?, ..self })
    }

    /// Sends a request about `share` and `path` (both may be empty) and returns a successful answer.
    async fn request(
        &self,
        method: Method,
        (share, path): (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let response = self.send(method, (share, path), query, headers, body).await?;
        read(&self.transport, response).await
    }

    /// Like `request`, but any answer is returned as soon as its head is there.
    async fn send(
        &self,
        method: Method,
        (share, path): (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, ClientError> {
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            // A URL would lose them on its way, and the request would be about something else.
            return Err(ClientError::InvalidPath { path: path.to_owned() });
        }
        let path = self.path_of(share, path);
        let mut query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, &KEPT))).collect();
        let date = httpdate::fmt_http_date(SystemTime::now());
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        headers.extend([("x-ms-date", date.as_str()), ("x-ms-version", VERSION)]);
        let authorization = match &self.signer {
            Signer::Sas(sas) => {
                query.push(sas.expose().to_owned());
                None
            }
            Signer::Key(key) => {
                let request = shared_key::Request {
                    method: method.as_str(),
                    path: &path,
                    query: &query.join("&"),
                    account: &self.account,
                };
                let signed = headers.iter().copied().chain([("content-length", length.as_str())]);
                Some(shared_key::authorization(request, signed, key))
            }
        };
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        let url = format!("{}{path}?{}", self.transport.server(), query.join("&"));
        self.transport.send(method, url.trim_end_matches('?'), &headers, body).await
    }

    fn path_of(&self, share: &str, path: &str) -> String {
        let mut full = self.root.clone();
        for segment in [share].into_iter().chain(path.split('/')).filter(|segment| !segment.is_empty()) {
            full.push('/');
            full.extend(utf8_percent_encode(segment, &KEPT));
        }
        if full.is_empty() { "/".to_owned() } else { full }
    }
}

/// Tries again what a broken connection or a busy server spoiled. Only for requests that may be repeated.
async fn persistently<T, A>(mut attempt: impl FnMut() -> A) -> Result<T, ClientError>
where
    A: Future<Output = Result<T, ClientError>>,
{
    let mut tried = 1;
    loop {
        match attempt().await {
            Err(error) if tried < TRIES && error.is_transient() => {
                tokio::time::sleep(RETRY_PAUSE * tried).await;
                tried += 1;
            }
            result => return result,
        }
    }
}

/// Reads the answer; an error answer becomes an error.
pub(crate) async fn read(transport: &Transport, mut response: Response) -> Result<Answer, ClientError> {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = transport.chunk(&mut response).await? {
        body.extend_from_slice(&chunk);
    }
    let answer = Answer { status, headers, body: body.into() };
    if status.is_success() { Ok(answer) } else { Err(ClientError::Api(error_of(&answer))) }
}

/// The service's XML error; for a HEAD request only the header is there.
fn error_of(answer: &Answer) -> ApiError {
    let document = String::from_utf8_lossy(&answer.body);
    let error = xml::parse(&document);
    let status = answer.status.as_u16();
    let code = answer.header("x-ms-error-code").or_else(|| error.as_ref()?.text_of("Code")).unwrap_or("Unknown");
    let message = error
        .as_ref()
        .and_then(|error| error.text_of("Message"))
        .and_then(|message| message.lines().next())
        .map_or_else(|| format!("the file service answered with status {status}"), str::to_owned);
    ApiError::new(status, code, message)
}

fn properties_of(headers: &reqwest::header::HeaderMap, length: u64) -> FileProperties {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    FileProperties {
        length,
        etag: text("etag").map(str::to_owned),
        last_modified: text("last-modified").and_then(http_time),
        content_type: text("content-type").map(str::to_owned),
    }
}

fn http_time(text: &str) -> Option<Timestamp> {
    httpdate::parse_http_date(text).ok().map(Timestamp::from)
}
