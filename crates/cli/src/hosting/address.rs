//! Where the server listens and how it is reached: the address, TLS, and the URLs that follow from both. Without TLS
//! the server must not be reachable from other machines: tokens and files would travel in clear.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use corro_server::tls::{Tls, TlsError, TlsSource};

use crate::failure::Failure;

pub const DEFAULT_LISTEN: &str = "127.0.0.1:8470";

#[derive(clap::Args, Debug, Clone)]
pub struct AddressArgs {
    /// The address to listen on; port 0 picks a free one. Other machines can be let in with TLS only
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,

    /// Serve TLS with a certificate authority of this server's own, kept in the data directory
    #[arg(long)]
    tls: bool,

    /// A host name or address that clients use for this machine; may be repeated. Goes into the certificate
    #[arg(long = "name", value_name = "NAME", requires = "tls")]
    names: Vec<String>,

    /// Serve TLS with this certificate (PEM, the server's own first, then those that vouch for it)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls")]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl AddressArgs {
    pub fn has_name(&self) -> bool {
        !self.names.is_empty()
    }
}

/// Refuses what cannot work before anything is made.
pub fn listen_address(args: &AddressArgs) -> Result<SocketAddr, Failure> {
    let text = &args.listen;
    let address: SocketAddr = text.replace("localhost:", "127.0.0.1:").parse().map_err(|_| {
        Failure::usage(format!("'{text}' is not an address to listen on"))
            .hint("write it as 127.0.0.1:8470 or [::1]:8470")
    })?;
    if !address.ip().is_loopback() && !args.tls && args.tls_cert.is_none() {
        let message = format!("refusing to listen on {address} without TLS: other machines could reach it");
        return Err(Failure::new(message).hint(
            "add --tls and the names that clients use, such as --name gpu-box, or listen on a loopback address such as 127.0.0.1:8470",
        ));
    }
    Ok(address)
}

/// Reads or makes what TLS needs; `None` when it is not asked for.
pub fn open_tls(args: &AddressArgs, data: &Path) -> Result<Option<Tls>, Failure> {
    let source = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            TlsSource::CertificateFiles { certificate: certificate.clone(), key: key.clone() }
        }
        _ if args.tls => TlsSource::OwnCa { dir: data.join("tls"), names: names(args)? },
        _ => return Ok(None),
    };
    Tls::open(&source).map(Some).map_err(|error| {
        let failure = Failure::of(&error);
        match error {
            TlsError::Name { .. } => failure.hint("write --name as gpu-box, gpu-box.example.org or 10.1.2.3"),
            TlsError::Read { .. } | TlsError::NoCertificate { .. } | TlsError::NoKey { .. } => {
                failure.hint("give --tls-cert and --tls-key two PEM files, or --tls alone")
            }
            _ => failure,
        }
    })
}

/// The names given, and the address itself when it is one that other machines use.
fn names(args: &AddressArgs) -> Result<Vec<String>, Failure> {
    let ip = listen_address(args)?.ip();
    let own = (!ip.is_unspecified() && !ip.is_loopback()).then(|| ip.to_string());
    Ok(args.names.iter().cloned().chain(own).collect())
}

/// Agents that are started elsewhere are told one way to the server: "all addresses of this machine" is none.
pub fn check_way_in(args: &AddressArgs) -> Result<(), Failure> {
    let address = listen_address(args)?;
    if address.ip().is_unspecified() && args.names.is_empty() {
        return Err(Failure::usage(format!("agents elsewhere cannot be told to look for the server at {address}"))
            .hint("add --name with the name by which they reach this machine, or listen on the address they reach"));
    }
    Ok(())
}

/// How commands and nodes on this machine reach the server.
pub fn local_url(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

/// How others reach it: by the first name that was given.
pub fn public_url(args: &AddressArgs, address: SocketAddr, tls: bool) -> String {
    match args.names.first() {
        Some(name) if name.parse::<Ipv6Addr>().is_ok() => format!("https://[{name}]:{}", address.port()),
        Some(name) => format!("https://{name}:{}", address.port()),
        None => local_url(address, tls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(listen: &str, tls: bool, names: &[&str]) -> AddressArgs {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        AddressArgs { listen: listen.to_owned(), tls, names, tls_cert: None, tls_key: None }
    }

    #[test]
    fn other_machines_are_let_in_with_tls_only() {
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
    fn agents_elsewhere_need_one_way_in() {
        for (text, names, good) in [
            ("0.0.0.0:8470", &[][..], false),
            ("0.0.0.0:8470", &["gpu-box"][..], true),
            ("10.1.2.3:8470", &[][..], true),
            ("127.0.0.1:8470", &[][..], true),
        ] {
            assert_eq!(check_way_in(&args(text, true, names)).is_ok(), good, "{text} {names:?}");
        }
    }

    #[test]
    fn urls_lead_to_the_server() {
        let any: SocketAddr = "0.0.0.0:8470".parse().expect("an address");
        assert_eq!(local_url(any, true), "https://127.0.0.1:8470");
        assert_eq!(local_url("[::]:1".parse().expect("an address"), false), "http://[::1]:1");
        assert_eq!(local_url("10.1.2.3:1".parse().expect("an address"), true), "https://10.1.2.3:1");
        assert_eq!(public_url(&args("x", true, &["gpu-box", "b"]), any, true), "https://gpu-box:8470");
        assert_eq!(public_url(&args("x", true, &["fe80::1"]), any, true), "https://[fe80::1]:8470");
        assert_eq!(public_url(&args("x", false, &[]), any, false), "http://127.0.0.1:8470");
    }
}
