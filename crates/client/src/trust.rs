//! Certificates that are trusted for TLS connections of clients and agents. There is no way to trust every certificate.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Source of trust for the server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The system's certificate authorities.
    #[default]
    System,
    /// These certificates (PEM): authorities, or the server's own.
    Pem(String),
    /// Certificate with this SHA-256 fingerprint: an authority that the server presents, or the server's own.
    Fingerprint(Fingerprint),
}

/// SHA-256 of a certificate. Printed in hexadecimal; parsed with or without colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

#[derive(Debug, Error)]
pub enum TrustError {
    #[error("cannot read the certificates in {file}")]
    Read { file: String, source: std::io::Error },
    #[error("there is no certificate in {place}: a PEM file with -----BEGIN CERTIFICATE----- is needed")]
    NoCertificate { place: &'static str },
    #[error("'{text}' is not a SHA-256 fingerprint: write its 64 hexadecimal digits, with or without colons")]
    Fingerprint { text: String },
    #[error("invalid certificates of trusted authorities")]
    Unusable(#[source] rustls::Error),
    #[error("invalid client certificate or key: {0}")]
    Identity(String),
}

/// Client certificate and key, both PEM.
pub struct Identity<'a> {
    pub certificates: &'a [u8],
    pub key: &'a [u8],
}

impl Trust {
    pub fn from_file(path: &Path) -> Result<Trust, TrustError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TrustError::Read { file: path.display().to_string(), source })?;
        certificates(&text, "the file")?;
        Ok(Trust::Pem(text))
    }

    /// Trusts no certificate: for connections without TLS.
    pub fn none() -> Trust {
        Trust::Fingerprint(Fingerprint([0; 32]))
    }

    /// TLS configuration with this trust.
    pub fn client_config(&self) -> Result<ClientConfig, TrustError> {
        self.client_config_of(None)
    }

    /// The same, with a client certificate.
    pub fn client_config_of(&self, identity: Option<Identity<'_>>) -> Result<ClientConfig, TrustError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TrustError::Unusable)?;
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Trust::System => Arc::new(rustls_platform_verifier::Verifier::new(provider).map_err(TrustError::Unusable)?),
            Trust::Pem(text) => {
                let exact = certificates(text, "the configured certificate authority")?;
                Arc::new(PinnedVerifier { trusted: PinnedTrust::Certificates(exact), provider })
            }
            Trust::Fingerprint(fingerprint) => {
                Arc::new(PinnedVerifier { trusted: PinnedTrust::Digest(*fingerprint), provider })
            }
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let Some(Identity { certificates, key }) = identity else { return Ok(builder.with_no_client_auth()) };
        let unusable = |why: &dyn fmt::Display| TrustError::Identity(why.to_string());
        let shown: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
        builder.with_client_auth_cert(shown.map_err(|error| unusable(&error))?, key).map_err(|error| unusable(&error))
    }
}

impl Fingerprint {
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }

    pub fn parse(text: &str) -> Result<Fingerprint, TrustError> {
        let wrong = || TrustError::Fingerprint { text: text.to_owned() };
        let digits = text.trim().trim_start_matches("sha256:").replace(':', "");
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (idx, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * idx..2 * idx + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn certificates(text: &str, place: &'static str) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(TrustError::NoCertificate { place })
}

#[derive(Debug)]
enum PinnedTrust {
    Certificates(Vec<CertificateDer<'static>>),
    Digest(Fingerprint),
}

/// Verifier that accepts a pinned certificate as the server's own, or one that a pinned authority signed for its name.
#[derive(Debug)]
struct PinnedVerifier {
    trusted: PinnedTrust,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn is_trusted(&self, certificate: &CertificateDer<'_>) -> bool {
        match &self.trusted {
            PinnedTrust::Certificates(known) => known.iter().any(|known| known == certificate),
            PinnedTrust::Digest(known) => *known == Fingerprint::of(certificate),
        }
    }

    fn authorities(&self, shown: &[CertificateDer<'_>]) -> Vec<CertificateDer<'static>> {
        match &self.trusted {
            PinnedTrust::Certificates(known) => known.clone(),
            PinnedTrust::Digest(_) => {
                shown.iter().filter(|shown| self.is_trusted(shown)).map(|shown| shown.clone().into_owned()).collect()
            }
        }
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.is_trusted(end_entity) {
            // A pinned certificate is a stronger statement than any name inside it.
            return Ok(ServerCertVerified::assertion());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.authorities(intermediates));
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|_| unknown())?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_people_write_them() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        let read = |text: &str| Fingerprint::parse(text).map(|found| found.to_string()).ok();
        assert_eq!(read(&plain).as_deref(), Some(plain.as_str()));
        assert_eq!(read(&colons).as_deref(), Some(plain.as_str()));
        assert_eq!(read(&format!("sha256:{plain}\n")).as_deref(), Some(plain.as_str()));
        for wrong in ["", "ab", &"xy".repeat(32), &"é".repeat(32), &"+1".repeat(32)] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn text_without_a_certificate_is_refused_before_anybody_is_reached() {
        for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"] {
            assert!(matches!(
                Trust::Pem(text.into()).client_config(),
                Err(TrustError::NoCertificate { .. } | TrustError::Unusable(_))
            ));
        }
        Trust::System.client_config().expect("the system's own");
    }
}
