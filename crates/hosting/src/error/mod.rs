//! Errors of everything that can go wrong before or while the embedded server starts. They are made for people: besides its message, an
//! error has a hint that says what to do, and knows whether the command line was wrong.

mod provider;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use corro_client::ProfileError;
use corro_server::admin_login_file::SaveError;
use corro_server::tls::TlsError;

pub use provider::ProviderError;

#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    #[error("'{text}' is not an address to listen on")]
    ListenAddress { text: String },
    #[error("refusing to listen on {address} without TLS: other machines could reach it")]
    PlainTextListen { address: SocketAddr },
    #[error("agents on other machines cannot connect to {address}")]
    WildcardWithoutName { address: SocketAddr },
    #[error("--nfs {text}: it is not an address to serve NFS on")]
    NfsAddress { text: String },
    #[error("--lease is {seconds}: use {min} to {max} seconds")]
    Lease { seconds: f64, min: f64, max: f64 },
    #[error("{flag} is {seconds}: use 0 to {max} seconds")]
    Seconds { flag: &'static str, seconds: f64, max: f64 },
    #[error("--wheels {}: {error}", path.display())]
    Wheels { path: PathBuf, error: io::Error },
    #[error("cannot use {} as data directory: {error}", path.display())]
    DataDirUnusable { path: PathBuf, error: io::Error },
    #[error("Corro is already running on {} ({holder})", path.display())]
    DataDirInUse { path: PathBuf, holder: String },
    #[error("'corro admin backup' or 'corro admin check' still reads {}", path.display())]
    DataDirRead { path: PathBuf },
    #[error("cannot record the identity of {}: {error}", path.display())]
    Incarnation { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    UrlFile { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Tls(TlsError),
    #[error(transparent)]
    Start(StartError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    EncodeLogin(serde_json::Error),
    #[error(transparent)]
    SaveLogin(SaveError),
    /// The handlers of signals cannot be installed.
    #[error(transparent)]
    Signals(io::Error),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl HostingError {
    /// Whether the command line is wrong and nothing was attempted.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::ListenAddress { .. }
            | Self::WildcardWithoutName { .. }
            | Self::NfsAddress { .. }
            | Self::Lease { .. }
            | Self::Seconds { .. }
            | Self::Wheels { .. } => true,
            Self::Provider(error) => error.is_usage(),
            Self::PlainTextListen { .. }
            | Self::DataDirUnusable { .. }
            | Self::DataDirInUse { .. }
            | Self::DataDirRead { .. }
            | Self::Incarnation { .. }
            | Self::UrlFile { .. }
            | Self::Tls(_)
            | Self::Start(_)
            | Self::Profile(_)
            | Self::EncodeLogin(_)
            | Self::SaveLogin(_)
            | Self::Signals(_) => false,
        }
    }

    /// Remedy for the user.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ListenAddress { .. } => "write it as 127.0.0.1:8470 or [::1]:8470",
            Self::PlainTextListen { .. } => {
                "add --tls and the names that clients use, such as --name gpu-box, or listen on a loopback address such as 127.0.0.1:8470"
            }
            Self::WildcardWithoutName { .. } => {
                "add --name with a name by which they reach this machine, or listen on an address that they reach"
            }
            Self::NfsAddress { .. } => "write it as 10.0.0.4 or 10.0.0.4:2049, or 'off'",
            Self::Wheels { .. } => "name the directory that scripts/wheel wrote, or leave it out",
            Self::DataDirUnusable { .. } => "choose another one with --data DIR",
            Self::DataDirInUse { path, .. } => {
                return Some(format!(
                    "use that one, stop it with 'corro stop --data {}', or give this one a directory of its own with --data DIR",
                    path.display()
                ));
            }
            Self::DataDirRead { .. } => "wait until it ends, then start again",
            Self::Incarnation { .. } => "check that the disk is not full and that the directory belongs to you",
            Self::Tls(TlsError::Name { .. }) => "write --name as gpu-box, gpu-box.example.org or 10.1.2.3",
            Self::Tls(TlsError::Read { .. } | TlsError::NoCertificate { .. } | TlsError::NoKey { .. }) => {
                "give --tls-cert and --tls-key two PEM files, or --tls alone"
            }
            Self::Start(error) => return error.hint(),
            Self::Provider(error) => return error.hint(),
            Self::Lease { .. }
            | Self::Seconds { .. }
            | Self::UrlFile { .. }
            | Self::Tls(_)
            | Self::Profile(_)
            | Self::EncodeLogin(_)
            | Self::SaveLogin(_)
            | Self::Signals(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// A server could not start. Text and causes are those of the server's error.
#[derive(Debug)]
pub struct StartError {
    listen: SocketAddr,
    error: anyhow::Error,
}

impl StartError {
    pub fn new(listen: SocketAddr, error: anyhow::Error) -> Self {
        Self { listen, error }
    }

    /// A port that is in use gets a hint with another port.
    fn hint(&self) -> Option<String> {
        let Self { listen, error } = self;
        let is_in_use =
            |cause: &(dyn Error + 'static)| cause.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::AddrInUse);
        error.chain().any(is_in_use).then(|| {
            format!(
                "another program listens on {listen}; stop it, or choose another port with --listen {}:{}",
                listen.ip(),
                listen.port().wrapping_add(1).max(1024)
            )
        })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests;
