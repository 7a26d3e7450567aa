//! Errors of requests. The server may be `corro server` or `corro files`, so messages name neither; the command line
//! turns errors into exit codes and hints.

use std::io;
use std::path::PathBuf;

use corro_model::ApiError;
use thiserror::Error;

use crate::TrustError;

/// Error of the transport.
type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Error)]
pub enum ClientError {
    /// Nothing was sent: the connection failed.
    #[error("cannot reach the server at {server}")]
    Unreachable { server: String, source: Cause },
    /// The connection broke or timed out after it was established; the request may have been executed.
    #[error("the connection to the server at {server} broke")]
    Broken { server: String, source: Cause },
    /// Nothing was sent: the server's certificate is not trusted.
    #[error("the certificate of the server at {server} is not trusted")]
    Untrusted { server: String, source: rustls::Error },
    #[error("the server at {server} does not speak TLS")]
    NotTls { server: String },
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The server returned an error.
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the Corro server at {server} refused the login: {reason}")]
    LoginRefused { server: String, reason: String },
    #[error("unexpected response to {operation}: the server may have another version")]
    UnexpectedAnswer { operation: &'static str, source: serde_json::Error },
    #[error("unexpected response of the file service to {request}: the server may have another version")]
    UnexpectedFileAnswer { request: String },
    #[error("'{value}' is not an address of a Corro server")]
    InvalidServer { value: String },
    #[error("'{path}' is not a path on a share: it must not contain '.' or '..'")]
    InvalidPath { path: String },
    #[error("the storage account key is not valid base64")]
    InvalidAccountKey,
    #[error("cannot read {}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },
    #[error("{} exists and is not a regular file, so it is not replaced", path.display())]
    NotAPlainFile { path: PathBuf },
    #[error("invalid header {name}: use letters, digits and '-' in a name, and printable ASCII in a value")]
    InvalidHeader { name: String },
    #[error("the server at {server} did not answer within {seconds} seconds")]
    NoAnswerInTime { server: String, seconds: u32 },
    #[error("{name} was corrupted in transit: its checksum does not match")]
    Damaged { name: String },
    #[error("{} became shorter while it was uploaded", path.display())]
    SourceShrank { path: PathBuf },
    #[error("{name} changed on the share while it was downloaded")]
    ChangedDuringDownload { name: String },
}

impl ClientError {
    /// The server's error, if it responded.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            ClientError::Api(error) => Some(error),
            _ => None,
        }
    }

    pub fn status(&self) -> Option<u16> {
        self.api().map(|error| error.status)
    }

    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the same request may succeed a little later: no server, a broken connection, a server that starts or
    /// stops.
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::Damaged { .. } => true,
            ClientError::Api(error) => matches!(error.status, 408 | 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}
