//! End-to-end TLS with real processes: commands, nodes, files and logs; trusted certificates, and the errors for untrusted
//! ones.

use std::process::{Child, Command, Stdio};

use corro_test_support::skip;

use super::harness::host::find_program;
use super::harness::{CommandOutput, GROUP, IN_WORKSPACE, Site, wait_for};

/// Runs `curl` with this authority; `None`, with a notice, if it is not installed.
fn curl(site: &Site, args: &[&str]) -> Option<CommandOutput> {
    if find_program("curl").is_none() {
        skip::missing_component("no `curl` on this machine");
        return None;
    }
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*"]).args(args).current_dir(site.path());
    Some(CommandOutput::from(command.output().expect("curl runs")))
}

#[test]
fn the_tutorials_short_path_over_tls() {
    let mut site = Site::start_with(&["--no-containers", "--tls", "--name", "gpu-box.test"]);
    // The first line shows the public name; this machine uses its loopback.
    assert!(site.url.starts_with("https://gpu-box.test:"), "{}", site.url);
    let server = site.profile()["server"].as_str().expect("text").to_owned();
    assert!(server.starts_with("https://127.0.0.1:"), "{server}");
    site.prepare(2);
    site.submit_ranks("job1", 2, "echo \"rank $RANK was here\"");
    assert_eq!(site.wait_for_end("job1")["executionState"], "succeeded");
    let streamed = site.stream("job1", "stdout.txt").ok();
    assert!(streamed.stdout.contains("rank 0 was here") && streamed.stdout.contains("rank 1 was here"), "{streamed:?}");
    let files = site.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j job1")).json();
    let link = files[0]["downloadUrl"].as_str().expect("a link").to_owned();
    assert!(link.starts_with("https://127.0.0.1:"), "{link}");
    site.write("up.bin", [7; 100_000]);
    let account = "-s myshare --account-name mystorageaccount";
    site.corro(&format!("storage file upload {account} --source up.bin")).ok();
    site.corro(&format!("storage file download {account} -p up.bin --dest down.bin")).ok();
    assert_eq!(std::fs::read(site.path().join("down.bin")).expect("downloaded"), [7; 100_000]);

    // Other clients than ours: with the authority they connect by address and by name, without it nothing is sent.
    let port = server.rsplit(':').next().expect("a port").to_owned();
    let named = format!("https://gpu-box.test:{port}/subscriptions?api-version=2016-06-01");
    let host_style = format!("https://mystorageaccount.file.gpu-box.test:{port}/?comp=list");
    let resolve =
        [format!("gpu-box.test:{port}:127.0.0.1"), format!("mystorageaccount.file.gpu-box.test:{port}:127.0.0.1")];
    let resolve = ["--resolve", &resolve[0], "--resolve", &resolve[1]];
    let ca = site.data().join("tls/ca.pem");
    let ca = ca.to_str().expect("a plain path").to_owned();
    if let Some(followed) = curl(&site, &["--cacert", &ca, &link]) {
        assert!(followed.ok().stdout.contains("was here") || link.contains("execution"), "{link}");
        let token = format!("Authorization: Bearer {}", secure_token(&site, &server, &ca));
        let with = |url: &str| curl(&site, &[&["--cacert", &ca, "-i", "-H", &token][..], &resolve, &[url]].concat());
        assert!(with(&named).expect("curl").ok().stdout.starts_with("HTTP/1.1 200"));
        // The certificate covers the host of an account; the token is not valid for it.
        assert!(with(&host_style).expect("curl").ok().stdout.starts_with("HTTP/1.1 403"));
        let create = format!("{server}{}/resourceGroups/{GROUP}?api-version=2018-05-01", site.subscription());
        let deleted = curl(&site, &["--cacert", &ca, "-i", "-H", &token, "-X", "DELETE", &create]).expect("curl").ok();
        assert!(deleted.stdout.to_lowercase().contains("\r\nlocation: https://127.0.0.1:"), "{}", deleted.stdout);
        let refused = curl(&site, &[&server]).expect("curl");
        assert_eq!(refused.code, 60, "{refused:?}");
        // Plain HTTP on this port gets a hint.
        let plain = curl(&site, &["-i", &server.replace("https://", "http://")]).expect("curl").ok();
        assert!(plain.stdout.starts_with("HTTP/1.1 400") && plain.stdout.contains("use https://"), "{}", plain.stdout);
    }
    // A restart has a new certificate and the same authority.
    let before = std::fs::read(&ca).expect("the authority");
    assert_eq!(site.interrupt_server(), Some(0));
    site.up_at(server.trim_start_matches("https://"));
    assert_eq!(std::fs::read(&ca).expect("the authority"), before);
    site.corro("group list").ok();
}

fn secure_token(site: &Site, server: &str, ca: &str) -> String {
    let profile = site.profile();
    let field = |name: &str| profile[name].as_str().expect("text").to_owned();
    let form = format!(
        "grant_type=client_credentials&client_id={}&resource=x&client_secret={}",
        field("clientId"),
        field("clientSecret")
    );
    site.write("form", form);
    let url = format!("{server}/adfs/oauth2/token");
    let response = curl(site, &["--cacert", ca, "--data", "@form", &url]).expect("curl was there").json();
    response["access_token"].as_str().expect("a token").to_owned()
}

#[test]
fn a_server_that_cannot_prove_itself_is_not_talked_to() {
    let site = Site::start_with(&["--no-containers", "--tls"]);
    let other = Site::start_with(&["--no-containers", "--tls"]);
    let profile = site.path().join("config/profile.json");
    let mut changed = site.profile();
    changed["certificateAuthority"] = other.profile()["certificateAuthority"].clone();
    std::fs::write(&profile, changed.to_string()).expect("written");
    let refused = site.corro("group list");
    refused
        .fails(1, &["certificate", "is not trusted", "because: ", "hint: trust its certificate authority", "CORRO_CA"]);
    changed.as_object_mut().expect("an object").remove("certificateAuthority");
    std::fs::write(&profile, changed.to_string()).expect("written");
    site.corro("group list").fails(1, &["is not trusted"]);
    // The right file beside the profile repairs it; an invalid file is named.
    let with_ca = |file: &std::path::Path| {
        let mut command = site.command("corro");
        CommandOutput::from(command.args(["group", "list"]).env("CORRO_CA", file).output().expect("it runs"))
    };
    with_ca(&site.data().join("tls/ca.pem")).ok();
    with_ca(&profile).fails(1, &["there is no certificate in"]);
    with_ca(&site.path().join("none.pem")).fails(1, &["cannot read the certificates in", "none.pem"]);
    // The two mistakes with the scheme.
    let at = |server: String| {
        let mut command = site.command("corro");
        CommandOutput::from(command.args(["group", "list"]).env("CORRO_SERVER", server).output().expect("it runs"))
    };
    at(format!("http://{}", site.address())).fails(1, &["use https://"]);
    let plain = Site::start();
    at(format!("https://{}", plain.address()))
        .fails(1, &["does not speak TLS", "hint: write its address with http://"]);
}

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        super::harness::signal(self.0.id(), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn machines_join_with_the_authoritys_fingerprint_or_file() {
    let mut site = Site::unstarted(&["--no-containers", "--tls"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let stranger = Site::start_with(&["--tls"]);
    let ca = site.data().join("tls/ca.pem");
    let fingerprint = {
        let text = std::fs::read_to_string(&ca).expect("the authority");
        let line = text.lines().find_map(|line| line.strip_prefix("SHA-256: ")).expect("it says its fingerprint");
        line.to_owned()
    };
    let agent = |name: &str, trust: &[&str]| {
        let mut command = site.command("corro");
        command.args(["agent", "--server", &site.url, "--data", name, "--join-token-file"]);
        command.arg(site.data().join("join-token")).args(trust);
        command
    };
    // A client that cannot verify the server does not send the token.
    let wrong = stranger.data().join("tls/ca.pem");
    for trust in [&["--ca", wrong.to_str().expect("plain")][..], &["--ca-fingerprint", &"ab".repeat(32)], &[]] {
        let ended = CommandOutput::from(agent("wrong", trust).output().expect("it runs"));
        ended.fails(1, &["is not trusted", "--ca FILE or --ca-fingerprint"]);
    }
    let ended = CommandOutput::from(agent("wrong", &["--ca-fingerprint", "12:34"]).output().expect("it runs"));
    ended.fails(1, &["'12:34' is not a SHA-256 fingerprint"]);
    let ca = ca.to_str().expect("plain");
    let _agents: Vec<Agent> = [("n1", ["--ca", ca]), ("n2", ["--ca-fingerprint", &fingerprint])]
        .iter()
        .map(|(name, trust)| Agent(agent(name, trust).stderr(Stdio::null()).spawn().expect("it starts")))
        .collect();
    site.prepare(2);
    site.submit_ranks("job1", 2, "echo hello");
    wait_for("the job to succeed", || site.job("job1")["executionState"] == "succeeded");
}

#[test]
fn a_restored_server_keeps_its_authority() {
    use std::os::unix::fs::PermissionsExt;
    let mut site = Site::start_with(&["--no-containers", "--tls"]);
    let server = site.profile()["server"].as_str().expect("text").to_owned();
    site.corro("group create -n kept -l eastus").ok();
    site.corro("admin backup --data data --to copy.db").ok();
    assert_eq!(site.interrupt_server(), Some(0));
    let read = |site: &Site, name: &str| std::fs::read(site.data().join(name)).expect("the server wrote it");
    let names = ["tls/ca.pem", "tls/ca.key"];
    let before = names.map(|name| read(&site, name));
    let profile = std::fs::read(site.path().join("config/profile.json")).expect("the server wrote it");
    // The machine is lost, with everything that was not in the backup.
    std::fs::remove_dir_all(site.data()).expect("removed");
    site.corro("admin restore --from copy.db --data data").ok();
    let mode = std::fs::metadata(site.data().join("tls/ca.key")).expect("restored").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    site.up_at(server.trim_start_matches("https://"));
    assert_eq!(names.map(|name| read(&site, name)), before, "a start makes no new authority");
    // Clients that trusted the server before still do.
    site.write("config/profile.json", profile);
    site.corro("group show -n kept").ok();
}
