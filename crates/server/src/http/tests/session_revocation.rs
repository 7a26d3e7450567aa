//! RunningServer connections end with their credential. Uses a real server on a socket, since connections are aborted: the client requests
//! much more than fits into the socket buffers, reads a little and then waits.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corro_model::Secret;
use corro_model::storage::shared_key;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::TestServer;
use crate::http::{HttpService, serve};
use crate::storage_service::account_keys::AccountKeyCache;
use crate::tls::{Tls, TlsSource, tests::connector};
use crate::unix_now;

/// A file larger than all buffers of a loopback connection.
const LENGTH: u64 = 4 << 30;

/// Test timeout, longer than any machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

struct RunningServer {
    test_server: TestServer,
    address: std::net::SocketAddr,
    tls: Option<Tls>,
    _stop: watch::Sender<bool>,
}

/// A TCP or TLS connection.
trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection for S {}

impl RunningServer {
    async fn new() -> RunningServer {
        RunningServer::with(false).await
    }

    async fn with(is_secured: bool) -> RunningServer {
        let test_server = TestServer::new().await;
        test_server.create_workspace_with_cluster("g", "w").await;
        test_server.account("g", "someaccount").await;
        let shares = test_server.app.storage.shares.clone();
        shares.create_share("someaccount", "data").expect("a share");
        let path = corro_shares::SharePath::parse("long").expect("a path");
        shares.share("someaccount", "data").expect("the share").create_file(&path, LENGTH).expect("a sparse file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let judge = Arc::new(AccountKeyCache::new(test_server.app.clone()));
        let connections = test_server.api.connections();
        tokio::spawn(connections.run(test_server.app.store.clone(), judge, unix_now, stopping.clone()));
        let ca_dir = tempfile::tempdir().expect("a directory");
        let source = TlsSource::OwnCa { dir: ca_dir.path().to_owned(), names: Vec::new() };
        let tls = is_secured.then(|| Tls::open(&source).expect("a certificate"));
        tokio::spawn(serve(listener, tls.clone(), test_server.api.clone(), stopping));
        RunningServer { test_server, address, tls, _stop: stop }
    }

    /// Creates a reader; returns its app id and the login id of its token.
    async fn reader(&self, name: &str) -> (String, String) {
        let path = format!("{}/providers/Corro/principals", self.test_server.subscription());
        let made =
            self.test_server.request("POST", &path, json!({"displayName": name, "role": "Reader"})).await.is(200).body;
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let token =
            self.test_server.app.issue_token(&text("appId"), &Secret::new(text("password")), "x").expect("a token");
        (text("appId"), self.test_server.app.authenticate(token.access_token.expose()).expect("a caller").credential)
    }

    /// Path and query of a SAS URL issued to `by`.
    fn link(&self, by: &str) -> String {
        let keys = self.test_server.app.raw_account_keys("someaccount").expect("keys");
        let (file, until) = (("someaccount", "data", "long"), unix_now() + 3600);
        let file_link = corro_model::storage::sas::Resource::File;
        let query = corro_model::storage::sas::link_query(file_link, "rl", &keys[0], file, until, by).expect("a time");
        format!("/someaccount/data/long?{query}")
    }

    async fn connect(&self) -> Box<dyn Connection> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let Some(tls) = &self.tls else { return Box::new(stream) };
        let name = ServerName::try_from("localhost").expect("a name");
        Box::new(connector(&tls.trusted).connect(name, stream).await.expect("a handshake"))
    }

    async fn get(&self, target: &str) -> (Box<dyn Connection>, String) {
        let mut stream = self.connect().await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut first = vec![0; 4096];
        let length = stream.read(&mut first).await.expect("an answer");
        (stream, String::from_utf8_lossy(&first[..length]).into_owned())
    }
}

/// Reads to the end of the connection; returns the number of bytes.
async fn rest_of(mut stream: impl Connection) -> u64 {
    let (mut piece, mut total) = (vec![0; 1 << 20], 0);
    let read = async {
        while let Ok(length @ 1..) = stream.read(&mut piece).await {
            total += length as u64;
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("it ends");
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_over_tls_are_aborted_too() {
    let open = RunningServer::with(true).await;
    let (alice, of_alice) = open.reader("alice").await;
    let (taken, answer) = open.get(&open.link(&of_alice)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let revoke = format!("{}/providers/Corro/principals/{alice}/revokeTokens", open.test_server.subscription());
    open.test_server.request("POST", &revoke, Value::Null).await.is(200);
    assert!(rest_of(taken).await < LENGTH / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_aborted_with_its_key_and_leaves_nothing() {
    const PART: usize = 4 << 20;
    let open = RunningServer::new().await;
    let keys = open.test_server.app.raw_account_keys("someaccount").expect("keys");
    let (length, range) = (PART.to_string(), format!("bytes=0-{}", PART - 1));
    let date = httpdate::fmt_http_date(SystemTime::now());
    let headers = [
        ("Content-Length", length.as_str()),
        ("x-ms-date", &date),
        ("x-ms-range", &range),
        ("x-ms-version", "2018-03-28"),
        ("x-ms-write", "update"),
    ];
    let (path, query) = ("/someaccount/data/long", "comp=range");
    let request = shared_key::Request { method: "PUT", path, query, account: "someaccount" };
    let signed = shared_key::authorization(request, headers, &keys[0]);
    let mut head = format!("PUT {path}?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {signed}\r\n");
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    let mut stream = open.connect().await;
    stream.write_all(format!("{head}\r\n").as_bytes()).await.expect("sent");
    stream.write_all(&vec![7; PART / 2]).await.expect("half of it is taken");
    let begun = async {
        while !open.test_server.api.connections().has_key_of("someaccount") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(DEADLINE, begun).await.expect("the upload begins");
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", open.test_server.group("g"));
    open.test_server.request("POST", &format!("{account}/regenerateKey"), json!({"keyName": "key1"})).await.is(200);
    assert_eq!(rest_of(stream).await, 0, "nobody answers it");
    let file = open.test_server.app.storage.shares.host_path("someaccount", "data").expect("the share").join("long");
    let mut first = [1; 16];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(file).expect("the file"), &mut first, 0)
        .expect("its beginning");
    assert_eq!(first, [0; 16], "half a range was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sas_download_ends_with_the_login_it_was_issued_for() {
    let open = RunningServer::new().await;
    let (alice, of_alice) = open.reader("alice").await;
    let (_, of_bob) = open.reader("bob").await;
    let (by_alice, by_bob) = (open.link(&of_alice), open.link(&of_bob));
    let (taken, answer) = open.get(&by_alice).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (mut kept, answer) = open.get(&by_bob).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let revoke = format!("{}/providers/Corro/principals/{alice}/revokeTokens", open.test_server.subscription());
    open.test_server.request("POST", &revoke, Value::Null).await.is(200);
    assert!(rest_of(taken).await < LENGTH / 2);
    let (_, answer) = open.get(&by_alice).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("AuthenticationFailed"), "{answer}");
    // The other download continues beyond what was in the buffers.
    let mut piece = vec![0; 64 << 20];
    tokio::time::timeout(DEADLINE, kept.read_exact(&mut piece)).await.expect("in time").expect("it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regenerated_key_aborts_downloads_of_the_old_one() {
    let open = RunningServer::new().await;
    let link = open.link("");
    let (taken, answer) = open.get(&link).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", open.test_server.group("g"));
    let regenerate = format!("{account}/regenerateKey");
    open.test_server.request("POST", &regenerate, json!({"keyName": "key2"})).await.is(200);
    let (mut still, _) = open.get(&link).await;
    let mut piece = vec![0; 64 << 20];
    tokio::time::timeout(DEADLINE, still.read_exact(&mut piece)).await.expect("in time").expect("the other key's");
    open.test_server.request("POST", &regenerate, json!({"keyName": "key1"})).await.is(200);
    assert!(rest_of(taken).await < LENGTH / 2);
    assert!(rest_of(still).await < LENGTH / 2);
    let (_, answer) = open.get(&link).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_ends_with_its_login() {
    let open = RunningServer::new().await;
    let path = format!("{}/providers/Corro/principals", open.test_server.subscription());
    let made =
        open.test_server.request("POST", &path, json!({"displayName": "alice", "role": "Reader"})).await.is(200).body;
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    let token = open.test_server.app.issue_token(&text("appId"), &Secret::new(text("password")), "x").expect("a token");
    let mut stream = open.connect().await;
    let request = format!(
        "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        token.access_token.expose()
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut first = vec![0; 4096];
    let length = stream.read(&mut first).await.expect("an answer");
    let answer = String::from_utf8_lossy(&first[..length]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("application/x-ndjson"), "{answer}");
    let revoke = format!("{path}/{}/revokeTokens", text("appId"));
    open.test_server.request("POST", &revoke, Value::Null).await.is(200);
    assert!(rest_of(stream).await < 4096);
}
