//! What is open ends with the credential that opened it. A real server on a socket, because what is cut is a connection:
//! the client here asks for much more than fits between the two, reads a little of it and then waits.

use std::sync::Arc;
use std::time::Duration;

use corro_model::Secret;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Bench;
use crate::app::keyring::Keyring;
use crate::http::{Door, serve};
use crate::unix_now;

/// A file that is longer than everything that can be under way on a loopback connection.
const LENGTH: u64 = 4 << 30;

/// Too long for any machine; the test fails by it instead of hanging.
const DEADLINE: Duration = Duration::from_secs(60);

struct Open {
    bench: Bench,
    address: std::net::SocketAddr,
    _stop: watch::Sender<bool>,
}

impl Open {
    async fn new() -> Open {
        let bench = Bench::new().await;
        bench.furnish("g", "w").await;
        bench.account("g", "someaccount").await;
        let shares = bench.app.shares.clone();
        shares.create_share("someaccount", "data").expect("a share");
        let path = corro_shares::SharePath::parse("long").expect("a path");
        shares.share("someaccount", "data").expect("the share").create_file(&path, LENGTH).expect("a sparse file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let judge = Arc::new(Keyring::new(bench.app.clone()));
        let standing = bench.api.standing();
        tokio::spawn(standing.watch(bench.app.store.clone(), judge, unix_now, stopping.clone()));
        tokio::spawn(serve(listener, None, bench.api.clone(), stopping));
        Open { bench, address, _stop: stop }
    }

    /// A new reader: app id and what its token is marked with.
    async fn reader(&self, name: &str) -> (String, String) {
        let path = format!("{}/providers/Corro/principals", self.bench.subscription());
        let made = self.bench.ask("POST", &path, json!({"displayName": name, "role": "Reader"})).await.is(200).body;
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let token = self.bench.app.issue_token(&text("appId"), &Secret::new(text("password")), "x").expect("a token");
        (text("appId"), self.bench.app.caller_of(token.access_token.expose()).expect("a caller").by)
    }

    /// The path and query of a link that this server made for `by`.
    fn link(&self, by: &str) -> String {
        let keys = self.bench.app.raw_account_keys("someaccount").expect("keys");
        let (file, until) = (("someaccount", "data", "long"), unix_now() + 3600);
        let file_link = corro_model::storage::sas::Resource::File;
        let query = corro_model::storage::sas::link_query(file_link, &keys[0], file, until, by).expect("a time");
        format!("/someaccount/data/long?{query}")
    }

    async fn get(&self, target: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut first = vec![0; 4096];
        let length = stream.read(&mut first).await.expect("an answer");
        (stream, String::from_utf8_lossy(&first[..length]).into_owned())
    }
}

/// Reads until the connection ends; how much there was.
async fn rest_of(mut stream: TcpStream) -> u64 {
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
async fn a_download_by_a_link_ends_with_the_login_it_was_made_for() {
    let open = Open::new().await;
    let (alice, of_alice) = open.reader("alice").await;
    let (_, of_bob) = open.reader("bob").await;
    let (by_alice, by_bob) = (open.link(&of_alice), open.link(&of_bob));
    let (taken, answer) = open.get(&by_alice).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (mut kept, answer) = open.get(&by_bob).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let revoke = format!("{}/providers/Corro/principals/{alice}/revokeTokens", open.bench.subscription());
    open.bench.ask("POST", &revoke, Value::Null).await.is(200);
    assert!(rest_of(taken).await < LENGTH / 2);
    let (_, answer) = open.get(&by_alice).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("AuthenticationFailed"), "{answer}");
    // The other one goes on, for longer than what was on its way.
    let mut piece = vec![0; 64 << 20];
    tokio::time::timeout(DEADLINE, kept.read_exact(&mut piece)).await.expect("in time").expect("it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_ends_what_was_opened_with_the_old_one() {
    let open = Open::new().await;
    let link = open.link("");
    let (taken, answer) = open.get(&link).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", open.bench.group("g"));
    let regenerate = format!("{account}/regenerateKey");
    open.bench.ask("POST", &regenerate, json!({"keyName": "key2"})).await.is(200);
    let (mut still, _) = open.get(&link).await;
    let mut piece = vec![0; 64 << 20];
    tokio::time::timeout(DEADLINE, still.read_exact(&mut piece)).await.expect("in time").expect("the other key's");
    open.bench.ask("POST", &regenerate, json!({"keyName": "key1"})).await.is(200);
    assert!(rest_of(taken).await < LENGTH / 2);
    assert!(rest_of(still).await < LENGTH / 2);
    let (_, answer) = open.get(&link).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
