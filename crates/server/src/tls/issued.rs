//! The server's own certificate, signed by its authority. Its key lives in memory only: every start makes a new pair,
//! and a server that runs for long makes another one before the first ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::Authority;
use super::{TlsError, provider};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Some clients refuse certificates that last longer than 398 days.
const LIFE: Duration = Duration::from_secs(90 * DAY.as_secs());
const RENEWED_AFTER: Duration = Duration::from_secs(60 * DAY.as_secs());
/// Certificates are valid from a day before they were made; after a larger step back of the clock another one is made.
const CLOCK_STEP: Duration = Duration::from_secs(3600);

pub struct Issued {
    authority: Authority,
    params: CertificateParams,
    current: Mutex<Current>,
}

struct Current {
    pair: Arc<CertifiedKey>,
    made: SystemTime,
}

impl Issued {
    pub fn new(authority: Authority, names: &[String]) -> Result<Issued, TlsError> {
        let params = params(names)?;
        let now = SystemTime::now();
        let current = Mutex::new(Current { pair: issue(&authority, &params, now)?, made: now });
        Ok(Issued { authority, params, current })
    }

    fn pair(&self, now: SystemTime) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().expect("no one panics while holding the certificate");
        // Where the clock was set back, the present one is not valid yet.
        let is_due = now
            .duration_since(current.made)
            .map_or_else(|ahead| ahead.duration() > CLOCK_STEP, |age| age > RENEWED_AFTER);
        if is_due {
            match issue(&self.authority, &self.params, now) {
                Ok(pair) => *current = Current { pair, made: now },
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the server's certificate cannot be renewed; the old one is used");
                }
            }
        }
        current.pair.clone()
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Issued")
    }
}

impl ResolvesServerCert for Issued {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair(SystemTime::now()))
    }
}

/// Every name also covers the host-style addresses of accounts below it, `ACCOUNT.file.NAME` and `ACCOUNT.blob.NAME`. An
/// address has none below it.
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

fn issue(authority: &Authority, params: &CertificateParams, now: SystemTime) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(TlsError::Make)?;
    let certificate = authority.sign(params.clone(), &key, now, LIFE)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key of our own making");
    // The authority goes along, so that a client who knows its fingerprint alone can find it.
    let chain = vec![certificate, authority.certificate()];
    CertifiedKey::from_der(chain, private, &provider()).map(Arc::new).map_err(TlsError::SetUp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_runs_for_long_gets_a_new_certificate_in_time() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let authority = Authority::open(dir.path()).expect("opens");
        let issued = Issued::new(authority, &["gpu-box".to_owned()]).expect("issued");
        let leaf_at = |now: SystemTime| issued.pair(now).cert[0].clone();
        let now = SystemTime::now();
        let first = leaf_at(now);
        assert_eq!(leaf_at(now + RENEWED_AFTER - DAY), first);
        let second = leaf_at(now + RENEWED_AFTER + DAY);
        assert_ne!(second, first);
        assert_eq!(leaf_at(now + RENEWED_AFTER + 2 * DAY), second);
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
