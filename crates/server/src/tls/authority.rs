//! The certificate authority of this installation: made on the first start, kept in a directory, and the only one that
//! clients have to trust. Its key is in a file of mode 0600 and signs nothing but this server's certificates.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{TlsError, fingerprint, read};

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clients must be told of a new authority, so one lasts long.
const LIFE: Duration = Duration::from_secs(20 * 365 * DAY.as_secs());
/// One that ends sooner than this is replaced at the start.
const LAST_YEAR: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Clocks of clients may be behind.
const SLACK: Duration = Duration::from_secs(DAY.as_secs());
/// The line above the certificate that says when it ends, in seconds since 1970.
const ENDS: &str = "Ends: ";

pub struct Authority {
    file: PathBuf,
    text: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the authority of `dir`, or makes one where there is none or its time is nearly over.
    pub fn open(dir: &Path) -> Result<Authority, TlsError> {
        let (file, key_file) = (dir.join(CERTIFICATE), dir.join(KEY));
        let there = file.exists() && key_file.exists();
        if !there || is_ending(&read(&file)?, SystemTime::now()) {
            make(dir, &file, &key_file, SystemTime::now())?;
        }
        let key = read(&key_file)?;
        let key = KeyPair::from_pem(&key).map_err(|_| TlsError::NoKey { path: key_file.clone() })?;
        let text = read(&file)?;
        if CertificateDer::from_pem_slice(text.as_bytes()).is_err() {
            return Err(TlsError::NoCertificate { path: file });
        }
        Ok(Authority { file, text, issuer: Issuer::new(params(&key)?, key) })
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn certificate_text(&self) -> &str {
        &self.text
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.text.as_bytes()).expect("looked at when it was opened")
    }

    /// A certificate for `key`, from a little before `now` on for as long as `life`.
    pub fn sign(
        &self,
        mut params: CertificateParams,
        key: &KeyPair,
        now: SystemTime,
        life: Duration,
    ) -> Result<CertificateDer<'static>, TlsError> {
        limit(&mut params, now, life);
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer).map_err(TlsError::Make)?;
        Ok(certificate.der().clone())
    }
}

fn make(dir: &Path, file: &Path, key_file: &Path, now: SystemTime) -> Result<(), TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Write { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(TlsError::Make)?;
    let mut params = params(&key)?;
    limit(&mut params, now, LIFE);
    let certificate = params.self_signed(&key).map_err(TlsError::Make)?;
    let ends = (now + LIFE).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = format!(
        "The certificate authority of this Corro server. Clients may trust it; it is no secret.\nSHA-256: {}\n{ENDS}{ends}\n{}",
        fingerprint(certificate.der()),
        certificate.pem()
    );
    // The key first: a certificate without its key would be taken for a whole authority.
    write(key_file, key.serialize_pem().as_bytes(), 0o600).map_err(failed(key_file))?;
    write(file, text.as_bytes(), 0o644).map_err(failed(file))
}

/// Named after its key, so that the name is the same whenever the key is read again.
fn params(key: &KeyPair) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    let name = format!("Corro certificate authority {}", &fingerprint(key.public_key_raw())[..8]);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn limit(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970.saturating_sub(SLACK);
    params.not_after = epoch + since_1970 + life;
}

fn is_ending(text: &str, now: SystemTime) -> bool {
    let ends = text.lines().find_map(|line| line.strip_prefix(ENDS)?.trim().parse().ok());
    // One that does not say is the operator's own doing and left alone.
    ends.is_some_and(|ends| now + LAST_YEAR > UNIX_EPOCH + Duration::from_secs(ends))
}

/// Whole or not at all.
fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_stays_the_same_until_its_last_year() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let dir = dir.path().join("tls");
        let text = || Authority::open(&dir).expect("opens").certificate_text().to_owned();
        let first = text();
        assert_eq!(text(), first);
        let now = SystemTime::now();
        assert!(!is_ending(&first, now + LIFE - LAST_YEAR - DAY));
        assert!(is_ending(&first, now + LIFE - LAST_YEAR + DAY));
        assert!(!is_ending("no word of an end", now));
        let old = SystemTime::now() - LIFE + DAY;
        make(&dir, &dir.join(CERTIFICATE), &dir.join(KEY), old).expect("an old one");
        let replaced = text();
        assert!(replaced != first && !is_ending(&replaced, now));
    }

    #[test]
    fn its_key_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temp dir");
        let dir = dir.path().join("tls");
        Authority::open(&dir).expect("opens");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(KEY))), (0o700, 0o600));
    }
}
