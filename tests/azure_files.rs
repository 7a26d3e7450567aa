//! The file and blob services under unmodified client libraries: azure-storage-file and -blob 1.4 and 2.1, and
//! azure-storage-file-share and -blob 12, over TLS, with the account in the host name and in the path. The client programs are
//! in `tests/azure/python`; this file starts the servers for them. Without the libraries these tests print a notice and are
//! skipped.

mod harness;

use std::path::Path;

use harness::host::azure_client;
use harness::{CommandOutput, GROUP, Site};

const NAME: &str = "corro.test";
const ACCOUNT: &str = "mystorageaccount";

const TLS: &[&str] = &["--no-containers", "--tls", "--name", NAME];
const PLAIN: &[&str] = &["--no-containers"];

/// Runs these parts of `tests/azure/python`, with the libraries of this environment, against their own server.
fn run(environment: &str, up_args: &[&str], style: &str, parts: &str) {
    let Some(client) = azure_client(environment) else { return };
    let mut site = Site::unstarted(up_args);
    site.start_server("server", "127.0.0.1:0", "info");
    site.corro(&format!("group create -n {GROUP} -l eastus")).ok();
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS")).ok();
    let keys = site.corro(&format!("storage account keys list -g {GROUP} -n {ACCOUNT}")).json();
    let ca = site.data().join("tls/ca.pem");
    let server = site.profile()["server"].as_str().expect("an address").to_owned();
    let port = server.trim_end_matches('/').rsplit(':').next().expect("a port");

    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/azure/python/files.py");
    let mut command = std::process::Command::new(client.join("bin/python"));
    command.arg("-B").arg(program).current_dir(site.path()).env("HOME", site.home());
    command.env("REQUESTS_CA_BUNDLE", &ca).env("NO_PROXY", "*").env("PYTHONWARNINGS", "ignore");
    command.env("SUFFIX", format!("{NAME}:{port}")).env("CA", &ca).env("STYLE", style).env("PARTS", parts);
    command.env("ACCOUNT", ACCOUNT).env("KEY", keys[0]["value"].as_str().expect("a key"));
    command.env("DISK", site.data().join("shares").join(ACCOUNT));
    let ended = CommandOutput::from(command.output().expect("Python starts"));
    assert_eq!(ended.code, 0, "{environment}, {style}, {parts}:\n{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("\nRan ") && !ended.stderr.contains("\nRan 0 tests"), "{}", ended.stderr);
}

#[test]
fn with_1_4_by_path() {
    run("sdk1", TLS, "path", "files_1x files_1x_links files_1x_edge_cases blobs_1x");
}

#[test]
fn with_1_4_by_host() {
    run("sdk1", TLS, "host", "files_1x files_1x_links files_1x_edge_cases.OddNames blobs_1x");
}

#[test]
fn with_2_1_by_host() {
    let edge_cases = "files_1x_edge_cases.Retries files_1x_edge_cases.Authentication files_1x_edge_cases.OddNames files_1x_edge_cases.LargeFiles";
    run("sdk2", TLS, "host", &format!("files_1x files_1x_links {edge_cases} blobs_1x"));
}

#[test]
fn with_2_1_by_path() {
    run("sdk2", TLS, "path", "files_1x files_1x_links");
}

#[test]
fn with_12_by_path() {
    run("sdk12", TLS, "path", "files_12 files_12_leases files_12_links files_12_edge_cases blobs_12");
}

#[test]
fn with_12_by_host() {
    run("sdk12", TLS, "host", "files_12 files_12_links files_12_edge_cases.OddNames blobs_12");
}

#[test]
fn links_for_https_alone_open_nothing_on_a_server_without_tls() {
    run("sdk2", PLAIN, "plain", "files_1x_plain");
    run("sdk12", PLAIN, "plain", "files_12_plain");
}
