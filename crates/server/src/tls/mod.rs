//! TLS of the server's one port: with a certificate that an authority of our own signs, or with one that the operator
//! brings. Entered at the start by whoever embeds the server and by the listener for every connection. Private keys are
//! never printed and never leave the data directory.

mod ca;
mod server_cert;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use ca::CertificateAuthority;
use server_cert::ServerCertificate;

/// Where the server's certificate comes from.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// Signed by an authority kept in `dir`, for these host names and addresses beside those of this machine's loopback.
    OwnCa { dir: PathBuf, names: Vec<String> },
    /// The operator's own files: a chain, server first, and its key.
    CertificateFiles { certificate: PathBuf, key: PathBuf },
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("there is no certificate in {}: a PEM file with -----BEGIN CERTIFICATE----- is needed", path.display())]
    NoCertificate { path: PathBuf },
    #[error("there is no private key in {}: a PEM file with -----BEGIN PRIVATE KEY----- is needed", path.display())]
    NoKey { path: PathBuf },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("'{name}' is neither a host name nor an address that a certificate can be made for")]
    Name { name: String },
    #[error("the certificate cannot be made")]
    Make(#[source] rcgen::Error),
    #[error("TLS cannot be set up")]
    SetUp(#[source] rustls::Error),
}

/// Ready to serve.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    /// What clients need to believe the server: PEM.
    pub trusted: String,
    /// SHA-256 of the certificate that clients trust, in hexadecimal.
    pub fingerprint: String,
    /// Where `trusted` lies as a file.
    pub trusted_file: PathBuf,
}

impl Tls {
    /// Reads or makes everything. Blocking.
    pub fn open(source: &TlsSource) -> Result<Tls, TlsError> {
        match source {
            TlsSource::OwnCa { dir, names } => {
                let ca = CertificateAuthority::open(dir)?;
                let (trusted, trusted_file) = (ca.certificate_text().to_owned(), ca.certificate_file().to_owned());
                let fingerprint = fingerprint(&ca.certificate());
                let certificate = ServerCertificate::new(ca, names)?;
                Tls::new(Arc::new(certificate), trusted, fingerprint, trusted_file)
            }
            TlsSource::CertificateFiles { certificate, key } => open_certificate_files(certificate, key),
        }
    }

    fn new(
        resolver: Arc<dyn ResolvesServerCert>,
        trusted: String,
        fingerprint: String,
        trusted_file: PathBuf,
    ) -> Result<Tls, TlsError> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::SetUp)?;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), trusted, fingerprint, trusted_file })
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

fn open_certificate_files(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
    let text = read(certificate)?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| TlsError::NoCertificate { path: certificate.to_owned() })?;
    let private =
        PrivateKeyDer::from_pem_slice(read(key)?.as_bytes()).map_err(|_| TlsError::NoKey { path: key.to_owned() })?;
    let last = fingerprint(chain.last().expect("it is not empty"));
    let pair = CertifiedKey::from_der(chain, private, &provider()).map_err(|source| TlsError::KeyMismatch {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    })?;
    Tls::new(Arc::new(SingleCertAndKey::from(pair)), text, last, certificate.to_owned())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn fingerprint(certificate: &[u8]) -> String {
    crate::app::instance::hex(&Sha256::digest(certificate))
}

fn read(path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
pub(crate) mod tests;
