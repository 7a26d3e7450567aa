//! Typed HTTP client for the public API and the file service, used by the command line and the agent. Never prints,
//! never prompts, and never decides what a failure means for the user.
//!
//! Reading order: [`Profile`] (server address and login), [`Trust`] (certificates), [`Client`] (API requests, paging,
//! long-running operations), [`FileService`] (shares, uploads, downloads), [`FileLink`] (following a file by its SAS
//! URL), [`tunnel`] (byte streams to ports of a job's node).

mod client;
mod error;
mod events;
pub mod files;
mod http1_conn;
mod http_limits;
mod http_log;
mod login;
mod operation;
pub mod otlp_http;
pub mod profile;
mod response;
pub mod sas_url;
mod transport;
pub mod trust;
pub mod tunnel;
pub mod webhook_http;

pub use client::Client;
pub use error::ClientError;
pub use events::Events;
pub use files::{Credential, FileService};
pub use http_log::on_warning;
pub use operation::{Pending, RECONNECT_TIMEOUT};
pub use profile::{Profile, ProfileError};
pub use sas_url::FileLink;
pub use transport::{pool, tls_error};
pub use trust::{Fingerprint, Identity, Trust, TrustError};
