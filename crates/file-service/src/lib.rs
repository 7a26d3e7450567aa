//! The Azure Files and Azure Blob REST services over share trees on disk. Serves `az storage`, the Azure SDKs, `corro storage`,
//! mounts on other machines and `job file stream`. The blob service over containers is the same code with a few operations of
//! its own (`blobs`); jobs mount containers like shares. Knows nothing of jobs, databases or login tokens.
//!
//! Deny by default: no path is looked up before the request has a valid Shared Key signature or shared access signature (SAS), and
//! an unknown account is answered like a wrong key. URL paths are percent-decoded once, in `protocol::request`, and are
//! [`corro_shares::SharePath`]s from then on.
//!
//! Reading order:
//! - `service`: [`FileService::handle`], from request to response; `service::dispatch` has one line per operation
//! - `protocol`: requests, the table of operations, errors, headers and XML documents; no disk, no accounts
//! - `auth`: Shared Key, SAS and stored access policies
//! - `limits`: memory and time bounds of request bodies, pooled read buffers, the rate limit
//! - `context`: state of the service, and the operation in progress
//! - `preconditions`: leases, the read-only attribute, conditional headers
//! - `shares`, `files`, `blobs`, `mount`: the operations; `mount` has the extensions that FUSE mounts use
//! - `audit`: events for the server's history
//!
//! Modules use only modules above them in this list, except `audit`, which uses `protocol` alone.

mod audit;
mod auth;
mod blobs;
mod context;
mod files;
mod limits;
mod mount;
mod preconditions;
mod protocol;
mod service;
mod shares;
#[cfg(test)]
mod tests;

pub use self::audit::{AuditEvent, AuditSink};
pub use self::auth::{AccountKeys, CredentialSink, NODE_PREFIX};
pub use self::limits::RateLimiter;
pub use self::protocol::request::{AddressStyle, OverTls};
pub use self::service::FileService;
