//! TLS handshakes in memory: which names and certificates are accepted, and which files are refused.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;

/// A client connector that trusts these certificates (PEM).
pub(crate) fn connector(trusted: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(trusted.as_bytes()).flatten());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().expect("roots");
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn handshake(tls: &Tls, trusted: &str, name: &str) -> Result<(), String> {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let acceptor = tls.acceptor().clone();
    let serving = tokio::spawn(async move { acceptor.accept(theirs).await.map(|_| ()) });
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connected = connector(trusted).connect(name, ours).await;
    let _ = serving.await;
    connected.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn clients_of_the_ca_accept_every_name_of_the_server() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let names = vec!["gpu-box.example.org".to_owned(), "10.1.2.3".to_owned()];
    let own = |dir: PathBuf| Tls::open(&TlsSource::OwnCa { dir, names: names.clone() }).expect("TLS");
    let (tls, other) = (own(dir.path().join("a")), own(dir.path().join("b")));
    for name in [
        "localhost",
        "127.0.0.1",
        "::1",
        "gpu-box.example.org",
        "acc.file.gpu-box.example.org",
        "acc.file.localhost",
        "acc.blob.gpu-box.example.org",
        "acc.blob.localhost",
        "10.1.2.3",
    ] {
        assert_eq!(handshake(&tls, &tls.trusted, name).await, Ok(()), "{name}");
    }
    for name in ["elsewhere.example.org", "acc.queue.localhost", "deep.acc.file.localhost"] {
        assert!(handshake(&tls, &tls.trusted, name).await.is_err(), "{name}");
    }
    assert!(handshake(&tls, &other.trusted, "localhost").await.is_err());
    // The CA survives a restart: clients of the first start trust the next.
    let again = own(dir.path().join("a"));
    assert_eq!(handshake(&again, &tls.trusted, "localhost").await, Ok(()));
    assert_eq!(again.fingerprint, tls.fingerprint);
}

#[tokio::test]
async fn certificate_files_are_served_and_mismatched_keys_refused() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["my-host".to_owned()]).expect("a pair");
    let certificate = write("cert.pem", &cert.pem());
    let key = write("key.pem", &signing_key.serialize_pem());
    let other_key = rcgen::KeyPair::generate().expect("a key");
    let wrong = write("wrong.pem", &other_key.serialize_pem());
    let empty = write("empty.pem", "nothing");
    let open = |certificate: &PathBuf, key: &PathBuf| {
        Tls::open(&TlsSource::CertificateFiles { certificate: certificate.clone(), key: key.clone() })
    };
    let tls = open(&certificate, &key).expect("a pair");
    assert_eq!(handshake(&tls, &tls.trusted, "my-host").await, Ok(()));
    assert!(matches!(open(&certificate, &wrong), Err(TlsError::KeyMismatch { .. })));
    assert!(matches!(open(&empty, &key), Err(TlsError::NoCertificate { .. })));
    assert!(matches!(open(&certificate, &empty), Err(TlsError::NoKey { .. })));
    assert!(matches!(open(&dir.path().join("none"), &key), Err(TlsError::Read { .. })));
}
