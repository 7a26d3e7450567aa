//! The certificates that `az` believes: those this machine trusts anyway, so that other servers go on being believed, and
//! the authority of this server.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::failure::Failure;

/// Where systems keep what they trust, in one file.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub struct Bundle {
    pub text: String,
    /// Whose certificates stand beside the server's authority.
    pub others: Option<PathBuf>,
}

/// `own` is the file that a bundle of ours is kept in, which is not what the machine trusts anyway.
pub fn make(authority: &str, own: &Path) -> Result<Bundle, Failure> {
    let named = env::var_os("REQUESTS_CA_BUNDLE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let named = named.filter(|file| file != own && file.is_file());
    let usual = SYSTEM.iter().map(PathBuf::from).chain(beside_az());
    let others = named.or_else(|| usual.into_iter().find(|file| file.is_file()));
    let theirs = match &others {
        Some(file) => fs::read_to_string(file).map_err(|error| Failure {
            causes: vec![error.to_string()],
            ..Failure::new(format!("cannot read the certificates in {}", file.display()))
        })?,
        None => String::new(),
    };
    Ok(Bundle { text: joined(&theirs, authority), others })
}

/// Ours once, and last.
fn joined(theirs: &str, authority: &str) -> String {
    let authority = authority.trim();
    let theirs = theirs.replace(authority, "");
    let theirs = theirs.trim();
    if theirs.is_empty() { format!("{authority}\n") } else { format!("{theirs}\n\n{authority}\n") }
}

/// What the Python of the `az` on the search path brings along.
fn beside_az() -> Option<PathBuf> {
    let az = super::az_program()?.canonicalize().ok()?;
    let lib = az.parent()?.parent()?.join("lib");
    let pythons = fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("site-packages/certifi/cacert.pem"));
    pythons.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_stands_beside_the_others_once() {
        assert_eq!(joined("", "OURS\n"), "OURS\n");
        let bundle = joined("A\nB\n", "OURS\n");
        assert_eq!(bundle, "A\nB\n\nOURS\n");
        assert_eq!(joined(&bundle, "OURS\n"), bundle);
    }
}
