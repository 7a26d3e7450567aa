//! Certificate authority (CA) of this installation: created on the first start and stored in a directory. Clients trust this one
//! certificate. The private key lies in a file of mode 0600 and signs only this server's certificates.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corro_base::atomic_file;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{TlsError, fingerprint, read};

const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Validity of the CA certificate. Every client must be given a new one, so it is long.
const VALIDITY: Duration = Duration::from_secs(20 * 365 * DAY.as_secs());
/// A CA that expires sooner than this is replaced at the start of the server.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Certificates are valid from this long before they are made, for clients whose clock is behind.
const CLOCK_SKEW: Duration = Duration::from_secs(DAY.as_secs());
/// Prefix of the line above the certificate with its expiry in seconds since 1970.
const EXPIRY_PREFIX: &str = "Ends: ";

/// An opened CA: its certificate and the issuer with its private key.
pub struct CertificateAuthority {
    file: PathBuf,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Reads the CA in `dir`; creates one when there is none or it expires soon.
    pub fn open(dir: &Path) -> Result<CertificateAuthority, TlsError> {
        let (file, key_file) = (dir.join(CERTIFICATE_FILE), dir.join(KEY_FILE));
        let exists = file.exists() && key_file.exists();
        if !exists || expires_soon(&read(&file)?, SystemTime::now()) {
            create(dir, &file, &key_file, SystemTime::now())?;
        }
        let key = read(&key_file)?;
        let key = KeyPair::from_pem(&key).map_err(|_| TlsError::NoKey { path: key_file.clone() })?;
        let pem = read(&file)?;
        if CertificateDer::from_pem_slice(pem.as_bytes()).is_err() {
            return Err(TlsError::NoCertificate { path: file });
        }
        Ok(CertificateAuthority { file, pem, issuer: Issuer::new(params(&key)?, key) })
    }

    pub fn certificate_file(&self) -> &Path {
        &self.file
    }

    pub fn certificate_text(&self) -> &str {
        &self.pem
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("checked when the file was opened")
    }

    /// Signs a certificate for `key`, valid from shortly before `now` for `validity`.
    pub fn sign(
        &self,
        mut params: CertificateParams,
        key: &KeyPair,
        now: SystemTime,
        validity: Duration,
    ) -> Result<CertificateDer<'static>, TlsError> {
        set_validity(&mut params, now, validity);
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer).map_err(TlsError::Make)?;
        Ok(certificate.der().clone())
    }
}

fn create(dir: &Path, file: &Path, key_file: &Path, now: SystemTime) -> Result<(), TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Write { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(TlsError::Make)?;
    let mut params = params(&key)?;
    set_validity(&mut params, now, VALIDITY);
    let certificate = params.self_signed(&key).map_err(TlsError::Make)?;
    let ends = (now + VALIDITY).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let pem = format!(
        "The certificate authority of this Corro server. Clients may trust it; it is no secret.\nSHA-256: {}\n{EXPIRY_PREFIX}{ends}\n{}",
        fingerprint(certificate.der()),
        certificate.pem()
    );
    // The key is written first: a certificate without its key would be taken for a complete CA.
    atomic_file::replace(key_file, key.serialize_pem().as_bytes(), 0o600).map_err(failed(key_file))?;
    atomic_file::replace(file, pem.as_bytes(), 0o644).map_err(failed(file))
}

/// The name contains a digest of the key, so that it is the same whenever the key is read again.
fn params(key: &KeyPair) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    let name = format!("Corro certificate authority {}", &fingerprint(key.public_key_raw())[..8]);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, validity: Duration) {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + since_1970 + validity;
}

fn expires_soon(pem: &str, now: SystemTime) -> bool {
    let ends = pem.lines().find_map(|line| line.strip_prefix(EXPIRY_PREFIX)?.trim().parse().ok());
    // A file without the line was supplied by the operator and is left alone.
    ends.is_some_and(|ends| now + RENEW_BEFORE_EXPIRY > UNIX_EPOCH + Duration::from_secs(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_reused_until_its_last_year() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let dir = dir.path().join("tls");
        let pem = || CertificateAuthority::open(&dir).expect("opens").certificate_text().to_owned();
        let first = pem();
        assert_eq!(pem(), first);
        let now = SystemTime::now();
        assert!(!expires_soon(&first, now + VALIDITY - RENEW_BEFORE_EXPIRY - DAY));
        assert!(expires_soon(&first, now + VALIDITY - RENEW_BEFORE_EXPIRY + DAY));
        assert!(!expires_soon("no expiry line", now));
        let old = SystemTime::now() - VALIDITY + DAY;
        create(&dir, &dir.join(CERTIFICATE_FILE), &dir.join(KEY_FILE), old).expect("an old one");
        let replaced = pem();
        assert!(replaced != first && !expires_soon(&replaced, now));
    }

    #[test]
    fn the_key_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temp dir");
        let dir = dir.path().join("tls");
        CertificateAuthority::open(&dir).expect("opens");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(KEY_FILE))), (0o700, 0o600));
    }
}
