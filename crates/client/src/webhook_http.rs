//! One POST to the URL of a webhook, with a check of the address that is connected to. The name is resolved once, here, and the
//! connection goes to what was checked: a name that resolves to something else a moment later changes nothing. Follows no
//! redirect, uses no proxy (which would resolve the name again), and reads no body.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{StatusCode, Url, redirect};
use rustls::ClientConfig;

use crate::http_limits::{CONNECT_TIMEOUT, USER_AGENT};
use crate::{Trust, tls_error};

/// Why a post failed. No variant holds a part of the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookFailure {
    /// Nothing was sent: `is_allowed` refused all addresses of the host.
    #[error("the address of its host is not allowed")]
    NotAllowed(IpAddr),
    #[error("the name of its host cannot be resolved")]
    NotResolved,
    #[error("it cannot be reached")]
    NotReached,
    #[error("its certificate is not trusted")]
    Untrusted,
    #[error("it does not speak TLS")]
    NotTls,
    #[error("the connection broke before it answered")]
    Broken,
    #[error("it answered {status}{}", redirect_words(*.status))]
    Answered { status: StatusCode },
    #[error("the request cannot be made")]
    InvalidRequest,
}

fn redirect_words(status: StatusCode) -> &'static str {
    if status.is_redirection() { ", and redirects are not followed" } else { "" }
}

/// Client with the system's certificate authorities.
pub struct WebhookClient {
    /// `None` if the TLS library cannot be used.
    tls: Option<ClientConfig>,
}

impl WebhookClient {
    pub fn with_system_trust() -> WebhookClient {
        // System authorities may be missing; then `https` fails and `http` works.
        WebhookClient { tls: Trust::System.client_config().or_else(|_| Trust::none().client_config()).ok() }
    }

    /// Posts a body; a status of 2xx is success. The caller limits the time.
    pub async fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        is_allowed: impl Fn(IpAddr) -> bool,
    ) -> Result<(), WebhookFailure> {
        let url = Url::parse(url).map_err(|_| WebhookFailure::InvalidRequest)?;
        let addresses = checked_addresses(&url, is_allowed).await?;
        let tls = self.tls.clone().ok_or(WebhookFailure::InvalidRequest)?;
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(CheckedAddresses(addresses))
            .pool_max_idle_per_host(0)
            .tls_backend_preconfigured(tls)
            .user_agent(USER_AGENT)
            .build()
            .map_err(|_| WebhookFailure::InvalidRequest)?;
        let mut request = client.post(url).body(body);
        for (name, value) in headers {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) else {
                return Err(WebhookFailure::InvalidRequest);
            };
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(|error| classify(&error))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(WebhookFailure::Answered { status }),
        }
    }
}

/// Addresses of the URL's host that are allowed, at least one.
async fn checked_addresses(url: &Url, is_allowed: impl Fn(IpAddr) -> bool) -> Result<Vec<SocketAddr>, WebhookFailure> {
    let (host, port) = url.host_str().zip(url.port_or_known_default()).ok_or(WebhookFailure::InvalidRequest)?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let found: Vec<SocketAddr> = match literal {
        Ok(ip) => vec![(ip, port).into()],
        Err(_) => {
            let resolved = tokio::net::lookup_host((host, port)).await;
            resolved.map_err(|_| WebhookFailure::NotResolved)?.collect()
        }
    };
    let first = found.first().map(SocketAddr::ip).ok_or(WebhookFailure::NotResolved)?;
    let allowed: Vec<SocketAddr> = found.into_iter().filter(|address| is_allowed(address.ip())).collect();
    if allowed.is_empty() { Err(WebhookFailure::NotAllowed(first)) } else { Ok(allowed) }
}

/// Resolver that knows these addresses only. An address in a URL is not resolved; it was checked all the same.
struct CheckedAddresses(Vec<SocketAddr>);

impl Resolve for CheckedAddresses {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn classify(error: &reqwest::Error) -> WebhookFailure {
    match tls_error(error) {
        Some(rustls::Error::InvalidMessage(_)) => WebhookFailure::NotTls,
        Some(_) => WebhookFailure::Untrusted,
        None if error.is_connect() => WebhookFailure::NotReached,
        None if error.is_builder() => WebhookFailure::InvalidRequest,
        None => WebhookFailure::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// First byte of a TLS connection.
    const TLS_HANDSHAKE: u8 = 0x16;

    /// Receiver that answers each connection with the same text, and the requests that it got.
    async fn receiver(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, requests) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Vec::new())));
        let got = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                // A TLS client speaks another way, and is answered at once.
                while !request.ends_with(b"{}") && request.first() != Some(&TLS_HANDSHAKE) {
                    let mut part = [0; 1024];
                    match stream.read(&mut part).await {
                        Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
                        _ => break,
                    }
                }
                got.lock().expect("no panic").push(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (address, requests)
    }

    async fn post(url: &str, is_allowed: impl Fn(IpAddr) -> bool) -> Result<(), WebhookFailure> {
        WebhookClient::with_system_trust().post(url, &[("x-a", "b")], b"{}".to_vec(), is_allowed).await
    }

    #[tokio::test]
    async fn a_body_is_posted_with_its_headers_and_the_urls_login() {
        let (address, requests) = receiver("HTTP/1.1 204 No Content\r\n\r\n").await;
        post(&format!("http://me:pass@{address}/a/b?c=d"), |_| true).await.expect("accepted");
        let request = requests.lock().expect("no panic").remove(0);
        assert!(request.starts_with("POST /a/b?c=d HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{}"), "{request}");
        for header in ["x-a: b", "authorization: Basic bWU6cGFzcw==", &format!("host: {address}"), "content-length: 2"]
        {
            assert!(request.contains(&format!("\r\n{header}\r\n")), "{header} in {request}");
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_to_an_address_that_is_not_allowed() {
        let (address, requests) = receiver("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let port = address.port();
        let is_public =
            |ip: IpAddr| !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        // Forms of the same address; the last is a name.
        for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost"] {
            let result = post(&format!("http://{host}:{port}/"), is_public).await;
            assert!(matches!(result, Err(WebhookFailure::NotAllowed(_))), "{host}: {result:?}");
        }
        assert!(requests.lock().expect("no panic").is_empty());
        let checked: Mutex<Vec<IpAddr>> = Mutex::default();
        let note = |ip: IpAddr| {
            checked.lock().expect("no panic").push(ip);
            ip.is_ipv4()
        };
        post(&format!("http://localhost:{port}/"), note).await.expect("accepted");
        assert!(checked.lock().expect("no panic").contains(&"127.0.0.1".parse().expect("an address")));
    }

    /// The port of a name is the URL's, and a redirect to an allowed address is not followed either.
    #[tokio::test]
    async fn failures_say_what_happened_without_the_url() {
        let (redirecting, requests) = receiver("HTTP/1.1 307 Temporary Redirect\r\nlocation: /canary\r\n\r\n").await;
        let check = |result: Result<(), WebhookFailure>, expected: &str| {
            let text = result.expect_err("a failure").to_string();
            assert_eq!(text, expected);
        };
        let result = post(&format!("http://{redirecting}/canary"), |_| true).await;
        check(result, "it answered 307 Temporary Redirect, and redirects are not followed");
        assert_eq!(requests.lock().expect("no panic").len(), 1);
        let (failing, _) = receiver("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 6\r\n\r\ncanary").await;
        check(post(&format!("http://{failing}/canary"), |_| true).await, "it answered 503 Service Unavailable");
        check(post(&format!("https://{failing}/canary"), |_| true).await, "it does not speak TLS");
        let (silent, _) = receiver("").await;
        check(post(&format!("http://{silent}/canary"), |_| true).await, "the connection broke before it answered");
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        check(post(&format!("http://{closed}/canary"), |_| true).await, "it cannot be reached");
        check(post("http://canary.invalid/", |_| true).await, "the name of its host cannot be resolved");
        let client = WebhookClient::with_system_trust();
        let odd = client.post(&format!("http://{failing}/"), &[("x-a", "b\n")], Vec::new(), |_| true).await;
        check(odd, "the request cannot be made");
    }
}
