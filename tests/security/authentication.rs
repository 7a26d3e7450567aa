//! Authentication: tokens, node credentials, join tokens, and the modes of the files that hold secrets.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use corro_model::ops::ALL;
use corro_model::storage::hmac_base64;
use corro_store::encryption::digest;
use corro_store::{Store, Vault};
use serde_json::{Value, json};

use super::harness::{GROUP, Site, wait_for};

const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"];

/// Every operation's path, filled in with existing resources.
fn paths(site: &Site) -> BTreeSet<String> {
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    let fill = |path: &str| {
        path.replace("{subscription}", &subscription)
            .replace("{group}", GROUP)
            .replace("{workspace}", "batchaidev")
            .replace("{experiment}", "cifar")
            .replace("{cluster}", "nc6cluster")
            .replace("{account}", "mystorageaccount")
            .replace("{location}", "eastus")
            .replace("{job}", "job1")
            .replace("{principal}", "administrator")
            .replace("{fileServer}", "server1")
            .replace("{operation}", "7a0b2c3d-0000-0000-0000-000000000000")
    };
    ALL.iter().map(|(_, _, path)| fill(path)).collect()
}

/// Invalid tokens: garbage, and well-formed ones that were changed, forged or have expired.
fn bad_tokens(site: &mut Site) -> Vec<String> {
    let good = site.token();
    let profile = site.profile();
    site.kill_server();
    let (key, cred) = {
        let store = Store::open(&site.data().join("corro.db")).expect("the database opens");
        let vault = Vault::open(&site.data().join("master.key")).expect("the key opens");
        let sealed = store.snapshot().instance_record().expect("it has started once").token_key.clone();
        let secret = digest(profile["clientSecret"].as_str().expect("text"));
        // No tokens were revoked yet.
        let cred = digest(&format!("{secret} 0"))[..16].to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(store.close()).expect("the database closes");
        (vault.open_sealed("token key", &sealed).expect("they fit").expose().to_owned(), cred)
    };
    site.up_at(&site.address());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let token = |header: &str, key: &str, appid: &Value, exp: i64| {
        let claims = json!({"appid": appid, "tid": profile["tenant"], "cred": cred, "iat": now - 7200, "exp": exp});
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = hmac_base64(key.as_bytes(), &signed);
        format!("{signed}.{}", signature.trim_end_matches('=').replace('+', "-").replace('/', "_"))
    };
    let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
    // The recipe is right: with a future expiry the token is accepted.
    let made = format!("Bearer {}", token(hs256, &key, &profile["clientId"], now + 60));
    let target = format!("{}/resourceGroups?api-version=2018-05-01", site.subscription());
    site.request("GET", &target, &[("Authorization", &made)], b"").is(200);
    let (head, signature) = good.rsplit_once('.').expect("three parts");
    vec![
        token(hs256, &key, &profile["clientId"], now - 1),
        token(hs256, &key, &json!("somebody-else"), now + 60),
        token(hs256, "another key", &profile["clientId"], now + 60),
        token(r#"{"alg":"none"}"#, &key, &profile["clientId"], now + 60),
        format!("{head}."),
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        "garbage".to_owned(),
        "a.b.c".to_owned(),
        String::new(),
        profile["clientSecret"].as_str().expect("text").to_owned(),
    ]
}

#[test]
fn every_operation_and_method_needs_a_good_token() {
    let mut site = Site::start();
    site.prepare(0);
    let bad = bad_tokens(&mut site);
    let paths = paths(&site);
    let mut tried = 0;
    for path in &paths {
        for method in METHODS {
            // All bad tokens on every path, one after the other; no token and another scheme on every method too.
            let token = format!("Bearer {}", bad[tried % bad.len()]);
            tried += 1;
            for authorization in [None, Some(token.as_str()), Some("Basic YTpi"), Some("SharedKey a:b")] {
                let headers: Vec<_> = authorization.iter().map(|value| ("Authorization", *value)).collect();
                let response = site.request(method, &format!("{path}?api-version=2018-05-01"), &headers, b"{}");
                assert_eq!(response.status, 401, "{method} {path} with {authorization:?}: {response}");
                assert!(
                    response.header("www-authenticate").is_some() && !response.text().contains(GROUP),
                    "{response}"
                );
            }
        }
    }
    let target = format!("{}?api-version=2018-05-01", paths.iter().next().expect("there are paths"));
    for token in &bad {
        let response = site.request("GET", &target, &[("Authorization", &format!("Bearer {token}"))], b"");
        assert_eq!(response.status, 401, "{token}");
    }
    // Nothing was deleted.
    site.corro("batchai cluster show -g batchai.horovod -w batchaidev -n nc6cluster").ok();
    assert_eq!(site.account_keys().len(), 2);
}

#[test]
fn unknown_paths_need_a_token_too() {
    let site = Site::start();
    let odd = [
        "/",
        "//",
        "/metrics",
        "/debug/pprof",
        "/admin",
        "/Admin",
        "/health",
        "/subscriptions/x/nothing",
        "/providers/x",
        "/tenants",
        "/adfs",
        "/corro",
        "/corro/v1",
        "/corro/v1/nodes",
        "/corro/v1/join/",
        "/corro/v1/connect/",
        "/CORRO/V1/CONNECT",
        "/metadata/instance",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/../../etc/passwd",
        "/nobodysaccount/share/file",
        "/nobodysaccount?comp=list",
    ];
    for path in odd {
        for method in METHODS {
            for headers in [&[][..], &[("Authorization", "Bearer garbage")]] {
                let response = site.request(method, path, headers, b"");
                // The file service distinguishes a wrong signature from none, as the original did.
                assert!(matches!(response.status, 401 | 403), "{method} {path}: {response}");
            }
        }
    }
}

#[test]
fn secrets_lie_in_files_for_their_owner_alone() {
    let site = Site::start();
    site.prepare(1);
    let mode = |path: &Path| {
        std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).permissions().mode() & 0o777
    };
    let mut open = Vec::new();
    let mut check = |path: &Path, expected: u32| {
        if mode(path) != expected {
            open.push(format!(
                "{} has mode {:o}",
                path.strip_prefix(site.path()).expect("below").display(),
                mode(path)
            ));
        }
    };
    check(&site.data(), 0o700);
    check(&site.path().join("config"), 0o700);
    check(&site.path().join("config/profile.json"), 0o600);
    check(&site.data().join("master.key"), 0o600);
    check(&site.data().join("lock"), 0o600);
    let (node, _) = site.agents().remove(0);
    let node = site.data().join("nodes").join(node);
    check(&node, 0o700);
    for file in ["join-token", "credential.json", "agent.log"] {
        check(&node.join(file), 0o600);
    }
    // Its directory is private, but a copy of the database would not be.
    for file in ["corro.db", "corro.db-wal", "corro.db-shm"] {
        check(&site.data().join(file), 0o600);
    }
    assert!(open.is_empty(), "{open:#?}");
}

/// Connects with a node's credentials; returns the status.
fn connect(site: &Site, authorization: &str) -> u16 {
    let headers = [
        ("Authorization", authorization),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut text = format!("GET /corro/v1/connect HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\n", site.address());
    headers
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(site.address()).expect("the server accepts");
    stream.write_all((text + "\r\n").as_bytes()).expect("taken");
    let mut start = [0; 12];
    stream.read_exact(&mut start).expect("a response");
    String::from_utf8_lossy(&start[9..]).parse().expect("a status")
}

#[test]
fn a_node_is_only_itself_and_joins_only_once() {
    let site = Site::start();
    site.prepare(2);
    let nodes: Vec<_> = site.agents().into_iter().map(|(node, _)| site.data().join("nodes").join(node)).collect();
    let credentials: Vec<Value> = nodes
        .iter()
        .map(|dir| serde_json::from_slice(&std::fs::read(dir.join("credential.json")).expect("joined")).expect("JSON"))
        .collect();
    let bearer = |node: &Value, epoch: i64, secret: &Value| {
        format!("Bearer node:{}:{epoch}:{}", node.as_str().expect("text"), secret.as_str().expect("text"))
    };
    let [a, b] = &credentials[..] else { panic!("{credentials:?}") };
    let epoch = a["epoch"].as_i64().expect("a number");
    for stranger in [
        bearer(&a["node"], epoch, &b["secret"]),
        bearer(&b["node"], epoch, &a["secret"]),
        bearer(&a["node"], epoch + 1, &a["secret"]),
        bearer(&a["node"], epoch - 1, &a["secret"]),
        bearer(&json!("tvm-1_1-20180718t174802z-p"), epoch, &a["secret"]),
        format!("Bearer {}", site.token()),
        String::new(),
    ] {
        assert_eq!(connect(&site, &stranger), 401, "{stranger}");
    }
    // Nor is a node's credential a user's token.
    let own = bearer(&a["node"], epoch, &a["secret"]);
    let target = format!("{}/resourceGroups?api-version=2018-05-01", site.subscription());
    site.request("GET", &target, &[("Authorization", &own)], b"").is(401);
    for dir in &nodes {
        let token = std::fs::read_to_string(dir.join("join-token")).expect("it was written");
        let body = json!({"token": token.trim()}).to_string();
        site.request("POST", "/corro/v1/join", &[], body.as_bytes()).refused(401, "AuthenticationFailed");
    }
    for body in ["{\"token\":\"\"}", "{\"token\":\"guess\"}", &json!({"token": "0".repeat(64)}).to_string()] {
        site.request("POST", "/corro/v1/join", &[], body.as_bytes()).refused(401, "AuthenticationFailed");
    }
    for body in ["", "{}", "null", "[]"] {
        let response = site.request("POST", "/corro/v1/join", &[], body.as_bytes());
        assert!(matches!(response.status, 400 | 401), "{response}");
    }
    // The right one is accepted; the agent reconnects after it was displaced.
    assert_eq!(connect(&site, &own), 101);
    site.submit_ranks("job1", 2, "true");
    assert_eq!(site.wait_for_end("job1")["executionState"], "succeeded");
    // A removed node is not authenticated.
    site.corro("batchai cluster resize -g batchai.horovod -w batchaidev -n nc6cluster --target 0").ok();
    wait_for("the nodes to be gone", || site.cluster()["currentNodeCount"] == 0);
    assert_eq!(connect(&site, &own), 401);
}
