//! TLS of the server's port: with a certificate signed by the installation's own CA, or with the operator's certificate files.
//! Private keys are never printed and never leave the data directory.

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

/// Source of the server's certificate.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// Signed by the CA stored in `dir`, for these host names and addresses and the loopback ones.
    OwnCa { dir: PathBuf, names: Vec<String> },
    /// The operator's PEM files: a certificate chain, the server's first, and its key.
    CertificateFiles { certificate: PathBuf, key: PathBuf },
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("no certificate found in {}: a PEM file with -----BEGIN CERTIFICATE----- is needed", path.display())]
    NoCertificate { path: PathBuf },
    #[error("no private key found in {}: a PEM file with -----BEGIN PRIVATE KEY----- is needed", path.display())]
    NoKey { path: PathBuf },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("'{name}' is neither a host name nor an address that a certificate can be made for")]
    Name { name: String },
    #[error("cannot create the certificate")]
    Make(#[source] rcgen::Error),
    #[error("cannot set up TLS")]
    SetUp(#[source] rustls::Error),
}

/// TLS acceptor, and the certificate that clients must trust.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    /// PEM certificates that clients must trust.
    pub trusted: String,
    /// SHA-256 digest of the trusted certificate in hexadecimal.
    pub fingerprint: String,
    /// File that holds `trusted`.
    pub trusted_file: PathBuf,
}

impl Tls {
    /// Loads or creates the certificate and key. Blocking.
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
    crate::digest::hex(&Sha256::digest(certificate))
}

fn read(path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
pub(crate) mod tests;
