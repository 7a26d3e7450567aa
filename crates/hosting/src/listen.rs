//! Listening address and TLS of a server, and the URLs that follow from both. A server without TLS listens on loopback addresses
//! only, because tokens and files would travel in clear text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use corro_server::tls::{Tls, TlsSource};

use crate::HostingError;

/// Default of `--listen`.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8470";

#[derive(clap::Args, Debug, Clone)]
pub struct ListenArgs {
    /// Address and port to listen on. Port 0 picks a free port. Addresses other than loopback require TLS
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,

    /// Serve TLS with a certificate of the server's own certificate authority, which is stored in the data directory
    #[arg(long)]
    tls: bool,

    /// Host name or IP address that clients use for this machine. It is added to the certificate. Requires --tls. Can be
    /// repeated
    #[arg(long = "name", value_name = "NAME", requires = "tls")]
    names: Vec<String>,

    /// Serve TLS with this certificate chain, in PEM format with the server's certificate first. Requires --tls-key
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ListenArgs {
    /// Whether `--name` was given.
    pub fn has_name(&self) -> bool {
        !self.names.is_empty()
    }
}

/// Parses `--listen`. Without TLS only loopback addresses are accepted.
pub fn listen_address(args: &ListenArgs) -> Result<SocketAddr, HostingError> {
    let text = &args.listen;
    let address: SocketAddr = text
        .replace("localhost:", "127.0.0.1:")
        .parse()
        .map_err(|_| HostingError::ListenAddress { text: text.clone() })?;
    if !address.ip().is_loopback() && !args.tls && args.tls_cert.is_none() {
        return Err(HostingError::PlainTextListen { address });
    }
    Ok(address)
}

/// Loads the given certificate, or creates one from the server's own authority. `None` without TLS.
pub fn open_tls(args: &ListenArgs, data: &Path) -> Result<Option<Tls>, HostingError> {
    let source = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            TlsSource::CertificateFiles { certificate: certificate.clone(), key: key.clone() }
        }
        _ if args.tls => TlsSource::OwnCa { dir: data.join("tls"), names: certificate_names(args)? },
        _ => return Ok(None),
    };
    Tls::open(&source).map(Some).map_err(HostingError::Tls)
}

/// Names for the certificate: those of `--name`, and the listening address unless it is a loopback or wildcard address.
fn certificate_names(args: &ListenArgs) -> Result<Vec<String>, HostingError> {
    let ip = listen_address(args)?.ip();
    let own = (!ip.is_unspecified() && !ip.is_loopback()).then(|| ip.to_string());
    Ok(args.names.iter().cloned().chain(own).collect())
}

/// Checks that the public URL is one that agents on other machines can connect to: a wildcard address needs `--name`.
pub fn check_reachable_by_agents(args: &ListenArgs) -> Result<(), HostingError> {
    let address = listen_address(args)?;
    if address.ip().is_unspecified() && args.names.is_empty() {
        return Err(HostingError::WildcardWithoutName { address });
    }
    Ok(())
}

/// URL for commands and nodes on this machine. A wildcard address becomes the loopback address.
pub fn local_url(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

/// URL for other machines: the first `--name`, else the listening address.
pub fn public_url(args: &ListenArgs, address: SocketAddr, tls: bool) -> String {
    match args.names.first() {
        Some(name) if name.parse::<Ipv6Addr>().is_ok() => format!("https://[{name}]:{}", address.port()),
        Some(name) => format!("https://{name}:{}", address.port()),
        None => local_url(address, tls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(listen: &str, tls: bool, names: &[&str]) -> ListenArgs {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ListenArgs { listen: listen.to_owned(), tls, names, tls_cert: None, tls_key: None }
    }

    #[test]
    fn non_loopback_addresses_need_tls() {
        for (text, plain, secure) in [
            ("127.0.0.1:8470", true, true),
            ("localhost:0", true, true),
            ("[::1]:8470", true, true),
            ("127.9.9.9:1", true, true),
            ("0.0.0.0:8470", false, true),
            ("[::]:8470", false, true),
            ("192.168.1.4:8470", false, true),
            ("8470", false, false),
        ] {
            assert_eq!(listen_address(&args(text, false, &[])).is_ok(), plain, "{text}");
            assert_eq!(listen_address(&args(text, true, &[])).is_ok(), secure, "{text} with TLS");
        }
    }

    #[test]
    fn a_wildcard_address_needs_a_name_for_agents() {
        for (text, names, good) in [
            ("0.0.0.0:8470", &[][..], false),
            ("0.0.0.0:8470", &["gpu-box"][..], true),
            ("10.1.2.3:8470", &[][..], true),
            ("127.0.0.1:8470", &[][..], true),
        ] {
            assert_eq!(check_reachable_by_agents(&args(text, true, names)).is_ok(), good, "{text} {names:?}");
        }
    }

    #[test]
    fn urls_follow_from_address_and_names() {
        let any: SocketAddr = "0.0.0.0:8470".parse().expect("an address");
        assert_eq!(local_url(any, true), "https://127.0.0.1:8470");
        assert_eq!(local_url("[::]:1".parse().expect("an address"), false), "http://[::1]:1");
        assert_eq!(local_url("10.1.2.3:1".parse().expect("an address"), true), "https://10.1.2.3:1");
        assert_eq!(public_url(&args("x", true, &["gpu-box", "b"]), any, true), "https://gpu-box:8470");
        assert_eq!(public_url(&args("x", true, &["fe80::1"]), any, true), "https://[fe80::1]:8470");
        assert_eq!(public_url(&args("x", false, &[]), any, false), "http://127.0.0.1:8470");
    }
}
