//! TLS front end of the scripted API server: its own certificate authority, and mandatory client certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub struct TlsProxy {
    pub address: SocketAddr,
    /// PEM of the certificate authority, and below of a valid client certificate and its key.
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl TlsProxy {
    pub fn start(api: SocketAddr) -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        let issue = |name: &str| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new([name.to_owned()]).expect("a name");
            (params.signed_by(&key, &issuer).expect("a certificate"), key)
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let (server_certificate, server_key) = issue("127.0.0.1");
        let own_key = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![server_certificate.der().clone()], own_key)
            .expect("a certificate and its key");
        let (certificate, key) = issue("operator");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("tokio wants it so");
        std::thread::spawn(move || serve(listener, TlsAcceptor::from(Arc::new(config)), api));
        Self { address, authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn serve(listener: std::net::TcpListener, acceptor: TlsAcceptor, api: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut inside) = acceptor.accept(stream).await else { return };
                let mut api = TcpStream::connect(api).await.expect("the API server");
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut api).await;
            });
        }
    });
}
