//! Azure Files client for one storage account: shares, directories, files; and its blob service (`blobs`). Every
//! request is signed with the account key or carries a shared access signature; neither is ever printed.
//!
//! Reading order: this file (endpoint and credentials), `tree` (shares, directories, listings), `upload`, `download`
//! and its `partial_file`, `settings` (request metadata) and `properties` (response metadata), `links` (SAS URLs);
//! `mount_api` has the requests of mounts.

mod blobs;
mod download;
mod error_text;
mod links;
mod mount_api;
mod partial_file;
mod properties;
mod resource_type;
mod settings;
mod tree;
mod upload;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use corro_model::storage::shared_key;
use corro_model::xml;
use corro_model::{ApiError, Secret};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Response};

use crate::response::HttpResponse;
use crate::transport::Transport;
use crate::{ClientError, Trust};
use error_text::{RequestTarget, api_error};

pub use blobs::{Blob, BlobEntry, BlobFilter, Container};
pub use download::{Download, DownloadRange};
pub use mount_api::{AppendToken, BriefEntry, BriefPage, EntryKind, FileState, MAX_RANGES, ShareSpace};
pub use partial_file::Destination;
pub use properties::{Copy, FileProperties, Properties, ShareProperties};
pub use settings::{ContentSettings, FileSettings, Metadata};
pub use tree::{Entry, Link, Share, ShareFilter, WalkedFile};
pub use upload::guess_content_type;

const VERSION: &str = "2018-03-28";
const URL_ESCAPES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Attempts for one range of a transfer.
const MAX_TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Progress callback: bytes done, bytes in total.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Credential of requests.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Account key (base64).
    Key(Secret),
    /// Shared access signature: the query of a SAS URL without the question mark.
    Sas(Secret),
}

#[derive(Clone, Debug)]
pub struct FileService {
    transport: Transport,
    /// Path before the share: `/account` in path style, empty in host style.
    root: String,
    account: String,
    signer: Signer,
    /// Timeout of each request in seconds.
    timeout: Option<u32>,
    /// Snapshot of the share that all requests address.
    snapshot: Option<String>,
    /// Transfers check an MD5 digest of every range.
    validating: bool,
    /// Blob service; shares are containers.
    of_blobs: bool,
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

impl Signer {
    fn of(credential: Credential) -> Result<Signer, ClientError> {
        Ok(match credential {
            Credential::Key(key) => {
                Signer::Key(STANDARD.decode(key.expose().trim()).map_err(|_| ClientError::InvalidAccountKey)?)
            }
            Credential::Sas(query) => Signer::Sas(Secret::new(query.expose().trim_start_matches('?'))),
        })
    }
}

struct Signed<'h> {
    url: String,
    headers: Vec<(&'h str, Cow<'h, str>)>,
}

impl Signed<'_> {
    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_ref())).collect()
    }
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
        let signer = Signer::of(credential)?;
        Ok(FileService {
            transport: Transport::new(&format!("{scheme}://{host}"), &Trust::System)?,
            root: root.to_owned(),
            account: account.to_owned(),
            signer,
            timeout: None,
            snapshot: None,
            validating: false,
            of_blobs: false,
        })
    }

    /// The same connections with another credential.
    pub fn signing_with(self, credential: Credential) -> Result<FileService, ClientError> {
        Ok(FileService { signer: Signer::of(credential)?, ..self })
    }

    /// The same service over a dedicated connection, for a thread that sends one request at a time.
    pub fn dedicated(&self) -> Result<FileService, ClientError> {
        Ok(FileService { transport: self.transport.dedicated()?, ..self.clone() })
    }

    /// The same connections with the credential of `other`.
    pub fn signing_as(&self, other: &FileService) -> FileService {
        FileService { signer: other.signer.clone(), ..self.clone() }
    }

    /// The same service with other trusted certificates than the system's.
    pub fn trusting(self, trust: &Trust) -> Result<FileService, ClientError> {
        Ok(FileService { transport: Transport::new(self.transport.server(), trust)?, ..self })
    }

    /// Sets the timeout of each request.
    pub fn with_timeout(self, seconds: Option<u32>) -> FileService {
        FileService { timeout: seconds, ..self }
    }

    /// Addresses a snapshot instead of the live share.
    pub fn at_snapshot(self, snapshot: Option<String>) -> FileService {
        FileService { snapshot, ..self }
    }

    /// Checks the MD5 digest of every range that is sent or received.
    pub fn validating(self, validating: bool) -> FileService {
        FileService { validating, ..self }
    }

    pub fn account(&self) -> &str {
        &self.account
    }

    /// URL of a share or of something in it, without a signature.
    pub fn url(&self, share: &str, path: &str) -> String {
        let url = format!("{}{}", self.transport.server(), self.path_of(share, path));
        match &self.snapshot {
            Some(snapshot) => format!("{url}?sharesnapshot={}", utf8_percent_encode(snapshot, &URL_ESCAPES)),
            None => url,
        }
    }

    /// Sends a request about `share` and `path` (both may be empty) and returns a successful response.
    async fn request(
        &self,
        method: Method,
        (share, path): (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse, ClientError> {
        let answer = self.exchange(method, (share, path), query, headers, body).await?;
        self.accepted(answer, (share, path))
    }

    /// Same as `request`, but returns a response of any status.
    async fn exchange(
        &self,
        method: Method,
        target: (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse, ClientError> {
        let signed = self.signed(&method, target, query, headers, &body)?;
        self.in_time(self.transport.exchange(method, &signed.url, &signed.headers(), body)).await
    }

    /// Reads the response to a request about `share` and `path`; error messages name them.
    async fn read(&self, response: Response, (share, path): (&str, &str)) -> Result<HttpResponse, ClientError> {
        let answer = self.transport.whole(response).await?;
        self.accepted(answer, (share, path))
    }

    fn accepted(&self, answer: HttpResponse, (share, path): (&str, &str)) -> Result<HttpResponse, ClientError> {
        let about = RequestTarget { account: &self.account, share, path, of_blobs: self.of_blobs };
        if answer.status.is_success() { Ok(answer) } else { Err(ClientError::Api(api_error(&answer, about))) }
    }

    /// Same as `exchange`, but returns once the response head has arrived.
    async fn send(
        &self,
        method: Method,
        target: (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let signed = self.signed(&method, target, query, headers, &body)?;
        self.in_time(self.transport.send(method, &signed.url, &signed.headers(), body)).await
    }

    /// Signed request.
    fn signed<'h>(
        &self,
        method: &Method,
        (share, path): (&str, &str),
        query: &[(&str, &str)],
        headers: &[(&'h str, &'h str)],
        body: &Bytes,
    ) -> Result<Signed<'h>, ClientError> {
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            // URL normalization would remove these segments, and the request would address something else.
            return Err(ClientError::InvalidPath { path: path.to_owned() });
        }
        let path = self.path_of(share, path);
        let timeout = self.timeout.map(|seconds| seconds.to_string());
        let always = [("sharesnapshot", self.snapshot.as_deref()), ("timeout", timeout.as_deref())];
        let always = always.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let mut query: Vec<String> = (query.iter().copied().chain(always))
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, &URL_ESCAPES)))
            .collect();
        let date = httpdate::fmt_http_date(SystemTime::now());
        let mut headers: Vec<(&str, Cow<str>)> = headers.iter().map(|(name, value)| (*name, (*value).into())).collect();
        headers.extend([("x-ms-date", date.into()), ("x-ms-version", VERSION.into())]);
        match &self.signer {
            Signer::Sas(sas) => query.push(sas.expose().to_owned()),
            Signer::Key(key) => {
                let request = shared_key::Request {
                    method: method.as_str(),
                    path: &path,
                    query: &query.join("&"),
                    account: &self.account,
                };
                let length = body.len().to_string();
                let said = headers.iter().map(|(name, value)| (*name, value.as_ref()));
                let authorization = shared_key::authorization(request, said.chain([("content-length", &*length)]), key);
                headers.push(("authorization", authorization.into()));
            }
        };
        let mut url = format!("{}{path}?{}", self.transport.server(), query.join("&"));
        url.truncate(url.trim_end_matches('?').len());
        Ok(Signed { url, headers })
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let Some(seconds) = self.timeout else { return answer.await };
        let late = || ClientError::NoAnswerInTime { server: self.transport.server().to_owned(), seconds };
        tokio::time::timeout(Duration::from_secs(seconds.into()), answer).await.map_err(|_| late())?
    }

    fn path_of(&self, share: &str, path: &str) -> String {
        let mut full = self.root.clone();
        for segment in [share].into_iter().chain(path.split('/')).filter(|segment| !segment.is_empty()) {
            full.push('/');
            full.extend(utf8_percent_encode(segment, &URL_ESCAPES));
        }
        if full.is_empty() { "/".to_owned() } else { full }
    }
}

/// Retries after a broken connection or a busy server. Only for idempotent requests.
async fn persistently<T, A>(mut attempt: impl FnMut() -> A) -> Result<T, ClientError>
where
    A: Future<Output = Result<T, ClientError>>,
{
    let mut tried = 1;
    loop {
        match attempt().await {
            Err(error) if tried < MAX_TRIES && error.is_transient() => {
                tokio::time::sleep(RETRY_PAUSE * tried).await;
                tried += 1;
            }
            result => return result,
        }
    }
}

/// Reads the response; an error status becomes an error.
pub(crate) async fn read(transport: &Transport, response: Response) -> Result<HttpResponse, ClientError> {
    let answer = transport.whole(response).await?;
    if answer.status.is_success() { Ok(answer) } else { Err(ClientError::Api(error_of(&answer))) }
}

/// Error from the service's XML body, or from the header for a HEAD request.
fn error_of(answer: &HttpResponse) -> ApiError {
    let document = String::from_utf8_lossy(&answer.body);
    let error = xml::parse_small(&document);
    let status = answer.status.as_u16();
    let code = answer.header("x-ms-error-code").or_else(|| error.as_ref()?.text_of("Code")).unwrap_or("Unknown");
    let message = error
        .as_ref()
        .and_then(|error| error.text_of("Message"))
        .and_then(|message| message.lines().next())
        .map_or_else(|| format!("the file service answered with status {status}"), str::to_owned);
    ApiError::new(status, code, message)
}

fn md5_base64(bytes: &[u8]) -> String {
    use md5::Digest;
    STANDARD.encode(md5::Md5::digest(bytes))
}
