//! Rejected joins: each error names the cause and the remedy.

use corro_model::host::JoinToken;

use super::harness::{Site, wait_for};
use super::{JoinedHost, hosts, server, token};

fn join(site: &Site, token: &str, more: &str) -> super::harness::CommandOutput {
    site.write("token", token);
    site.corro(&format!("agent join --token-file token --data refused {more}"))
}

#[test]
fn a_refused_join_names_its_cause() {
    let site = server();
    site.corro("agent join --data refused").fails(2, &["the join token is empty", "corro host token"]);
    join(&site, "nonsense", "").fails(2, &["invalid join token", "corro-join-"]);
    site.corro("agent join --data refused --token-file nowhere").fails(1, &["cannot read the join token from nowhere"]);
    let made = token(&site, "");
    let word = made["token"].as_str().expect("a token").to_owned();
    join(&site, &word, "--name a/b").fails(2, &["cannot be a host's name", "--name"]);
    join(&site, &word, "ftp://x").fails(2, &["'ftp://x' is not a server's URL"]);
    join(&site, &word, "https://127.0.0.1:1").fails(1, &["cannot reach https://127.0.0.1:1"]);

    let honest = JoinToken::decode(&word).expect("a token");
    let other = JoinToken { ca_fingerprint: Some("ab".repeat(32)), ..honest.clone() };
    join(&site, other.encode().expose(), "").fails(1, &["not the one that the join token names"]);
    let forged = JoinToken { secret: corro_model::Secret::new("x"), ..honest };
    join(&site, forged.encode().expose(), "").fails(1, &["not known to this server, or was revoked"]);

    let brief = token(&site, "--ttl 1s");
    wait_for("the token to expire", || {
        let known = site.corro("host token --list").json();
        known.as_array().expect("a list").iter().any(|token| token["id"] == brief["id"] && token["expired"] == true)
    });
    join(&site, brief["token"].as_str().expect("a token"), "").fails(1, &["expired at", "corro host token"]);
    let id = made["id"].as_str().expect("an id");

    let first = JoinedHost::start(&site, "first", &format!("--token {word} --name same --cores 1 --memory 1"));
    wait_for("the first host", || hosts(&site).len() == 1);
    join(&site, &word, "--name SAME").fails(1, &["A host named 'SAME' has joined already", "--name"]);
    // It fits no pending node, and says so.
    site.corro("group create -n g -l eastus").ok();
    site.corro("batchai workspace create -g g -n w").ok();
    let size = "--vm-size Standard_NC6 --user-name me --password not-a-secret";
    site.corro(&format!("batchai cluster create -g g -w w -n large {size} --target 1")).ok();
    wait_for("the host to say that it is too small", || {
        let note = hosts(&site)[0]["note"].as_str().unwrap_or_default().to_owned();
        note.contains("large needs 6 cores, 56.0 GiB, 1 GPU (STANDARD_NC6), this host has 1 core, 1.0 GiB")
    });
    drop(first);

    site.corro(&format!("host token --revoke {id}")).ok();
    site.corro(&format!("host token --revoke {id}")).fails(3, &["there is no join token"]);
    join(&site, &word, "--name late").fails(1, &["was revoked"]);
    site.corro("host token --ttl soon").fails(2, &["write a duration as"]);
    site.corro("host token --server gpu-box").fails(1, &["is not a server's URL"]);
    for word in ["show", "cordon", "uncordon", "drain", "remove"] {
        let refused = site.corro(&format!("host {word} nobody"));
        assert!(
            refused.code != 0 && refused.stderr.contains("There is no host named 'nobody'"),
            "{word}: {}",
            refused.stderr
        );
    }
}

#[test]
fn a_server_that_makes_its_own_nodes_takes_no_hosts() {
    let site = Site::start();
    site.corro("host token").fails(1, &["hosts join a 'corro server'"]);
    assert!(hosts(&site).is_empty());
}

#[test]
fn a_unit_for_systemd_holds_no_secret() {
    let site = server();
    let word = token(&site, "")["token"].as_str().expect("a token").to_owned();
    site.write("token", &word);
    let unit = site.corro("agent join --token-file token --name unit --data h --cores 2 --systemd").ok().stdout;
    assert!(unit.contains("agent join \"--data\"") && unit.contains("\"--cores\" \"2\""), "{unit}");
    assert!(!unit.contains("corro-join-") && unit.contains("WantedBy=default.target"), "{unit}");
    assert_eq!(hosts(&site).len(), 1, "it has joined");
    assert_eq!(hosts(&site)[0]["state"], "silent", "no agent serves it yet");
    site.corro("agent join --data h --systemd user --write").ok();
    let written = site.home().join(".config/systemd/user/corro-host.service");
    assert!(std::fs::read_to_string(written).expect("a unit").contains("ExecReload=/bin/kill -USR2 $MAINPID"));
}
