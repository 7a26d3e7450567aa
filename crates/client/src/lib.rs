//! A typed HTTP client for the public API and the file service. The command line and the agent enter here; nothing in
//! this crate prints, asks or decides what a failure means for the user.
//!
//! Reading order: [`Profile`] (which server, which login), [`Trust`] (whose certificates), [`Client`] (requests of the operation table, paging,
//! long-running operations), [`FileService`] (shares, uploads, downloads), [`FileLink`] (following a
//! file by its link).

mod client;
pub mod collector;
mod error;
mod events;
pub mod files;
mod journal;
mod line;
pub mod link;
mod login;
mod operation;
pub mod profile;
mod transport;
pub mod trust;

pub use client::Client;
pub use error::ClientError;
pub use events::Events;
pub use files::{Credential, FileService};
pub use journal::on_warning;
pub use link::FileLink;
pub use operation::{PATIENCE, Pending};
pub use profile::{Profile, ProfileError};
pub use transport::{pool, tls_error};
pub use trust::{Fingerprint, Identity, Trust, TrustError};
