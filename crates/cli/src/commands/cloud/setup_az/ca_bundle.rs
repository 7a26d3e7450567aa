//! CA bundle for `az`: the certificates that this machine trusts, so that other servers keep working, and the authority of this server.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::error::CliError;

/// CA bundles of Linux distributions.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub struct CaBundle {
    pub text: String,
    /// File of the other certificates, if one was found.
    pub base_file: Option<PathBuf>,
}

/// Builds the bundle. `own` is the file of an earlier bundle, which is not used as a source.
pub fn build(authority: &str, own: &Path) -> Result<CaBundle, CliError> {
    let configured = env::var_os("REQUESTS_CA_BUNDLE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let configured = configured.filter(|file| file != own && file.is_file());
    let defaults = SYSTEM_BUNDLES.iter().map(PathBuf::from).chain(az_certifi_bundle());
    let base_file = configured.or_else(|| defaults.into_iter().find(|file| file.is_file()));
    let base = match &base_file {
        Some(file) => fs::read_to_string(file).map_err(|error| {
            CliError::new(format!("cannot read the certificates in {}", file.display())).cause(error)
        })?,
        None => String::new(),
    };
    Ok(CaBundle { text: append_once(&base, authority), base_file })
}

/// Appends the authority, removing an earlier copy.
fn append_once(base: &str, authority: &str) -> String {
    let authority = authority.trim();
    let base = base.replace(authority, "");
    let base = base.trim();
    if base.is_empty() { format!("{authority}\n") } else { format!("{base}\n\n{authority}\n") }
}

/// The `certifi` bundle of the Python installation of `az`.
fn az_certifi_bundle() -> Option<PathBuf> {
    let az = super::az_program()?.canonicalize().ok()?;
    let lib = az.parent()?.parent()?.join("lib");
    let pythons = fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("site-packages/certifi/cacert.pem"));
    pythons.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_appended_once() {
        assert_eq!(append_once("", "OURS\n"), "OURS\n");
        let bundle = append_once("A\nB\n", "OURS\n");
        assert_eq!(bundle, "A\nB\n\nOURS\n");
        assert_eq!(append_once(&bundle, "OURS\n"), bundle);
    }
}
