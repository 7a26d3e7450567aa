//! The server's certificate, signed by its CA. The private key exists in memory only: each start makes a new pair, and a running
//! server renews it before it expires.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ca::CertificateAuthority;
use super::{TlsError, provider};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Some clients refuse certificates that last longer than 398 days.
const VALIDITY: Duration = Duration::from_secs(90 * DAY.as_secs());
const RENEW_AFTER: Duration = Duration::from_secs(60 * DAY.as_secs());
/// Certificates are valid from a day before they were made. When the clock is set back by more than this, a new one is made.
const MAX_CLOCK_STEP_BACK: Duration = Duration::from_secs(3600);

/// Resolves the certificate for each TLS handshake and renews it when due.
pub struct ServerCertificate {
    ca: CertificateAuthority,
    params: CertificateParams,
    current: Mutex<IssuedPair>,
}

struct IssuedPair {
    pair: Arc<CertifiedKey>,
    made: SystemTime,
}

impl ServerCertificate {
    pub fn new(ca: CertificateAuthority, names: &[String]) -> Result<ServerCertificate, TlsError> {
        let params = params(names)?;
        let now = SystemTime::now();
        let current = Mutex::new(IssuedPair { pair: issue(&ca, &params, now)?, made: now });
        Ok(ServerCertificate { ca, params, current })
    }

    fn current_pair(&self, now: SystemTime) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().expect("never poisoned: nothing panics while it is locked");
        // After the clock was set back, the current certificate may not be valid yet.
        let is_due = now
            .duration_since(current.made)
            .map_or_else(|ahead| ahead.duration() > MAX_CLOCK_STEP_BACK, |age| age > RENEW_AFTER);
        if is_due {
            match issue(&self.ca, &self.params, now) {
                Ok(pair) => *current = IssuedPair { pair, made: now },
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the server's certificate cannot be renewed; the old one stays in use");
                }
            }
        }
        current.pair.clone()
    }
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerCertificate")
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current_pair(SystemTime::now()))
    }
}

/// Subject alternative names. Each host name also covers the host-style addresses of accounts, `ACCOUNT.file.NAME` and
/// `ACCOUNT.blob.NAME`; an IP address has no names below it.
fn params(names: &[String]) -> Result<CertificateParams, TlsError> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST).to_string(), IpAddr::from(Ipv6Addr::LOCALHOST).to_string()];
    let mut all: Vec<String> = names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    all.push("localhost".to_owned());
    all.extend(loopback);
    let hosts = all.iter().filter(|name| name.parse::<IpAddr>().is_err());
    let accounts: Vec<String> = hosts.flat_map(|name| [format!("*.file.{name}"), format!("*.blob.{name}")]).collect();
    all.extend(accounts);
    all.sort();
    all.dedup();
    for name in &all {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:*".contains(&byte));
        if name.is_empty() || !is_plain || CertificateParams::new(vec![name.clone()]).is_err() {
            return Err(TlsError::Name { name: name.clone() });
        }
    }
    let common = names.first().map_or("localhost", String::as_str).to_owned();
    let mut params = CertificateParams::new(all).map_err(TlsError::Make)?;
    params.distinguished_name.push(DnType::CommonName, common);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn issue(
    ca: &CertificateAuthority,
    params: &CertificateParams,
    now: SystemTime,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(TlsError::Make)?;
    let certificate = ca.sign(params.clone(), &key, now, VALIDITY)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a freshly generated key is valid PKCS#8");
    // The chain includes the CA, so that a client that knows only its fingerprint can find it.
    let chain = vec![certificate, ca.certificate()];
    CertifiedKey::from_der(chain, private, &provider()).map(Arc::new).map_err(TlsError::SetUp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_before_they_expire() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let ca = CertificateAuthority::open(dir.path()).expect("opens");
        let certificate = ServerCertificate::new(ca, &["gpu-box".to_owned()]).expect("issued");
        let leaf_at = |now: SystemTime| certificate.current_pair(now).cert[0].clone();
        let now = SystemTime::now();
        let first = leaf_at(now);
        assert_eq!(leaf_at(now + RENEW_AFTER - DAY), first);
        let second = leaf_at(now + RENEW_AFTER + DAY);
        assert_ne!(second, first);
        assert_eq!(leaf_at(now + RENEW_AFTER + 2 * DAY), second);
        assert_ne!(leaf_at(now - 3 * DAY), second, "the clock was set back: the second is not valid yet");
    }

    #[test]
    fn names_that_cannot_be_in_a_certificate_are_refused() {
        for name in ["", "two words", "https://host", "häuschen", "a/b"] {
            assert!(params(&[name.to_owned()]).is_err(), "{name}");
        }
        for name in ["host", "host.example.org", "10.1.2.3", "fe80::1", "HOST"] {
            params(&[name.to_owned()]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
