//! `corro cloud setup-az` with real servers and scratch files: its output, the files it writes, and that all of it is reverted
//! to the byte. If the real `az` is installed, it runs with the written configuration.

mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use corro_test_support::skip;

use harness::host::azure_client;
use harness::{CommandOutput, Site};

const CLOUDS: &str = "# clouds of ours\n[stack]\nEndpoint_Management: https://stack.example.org\n\n[DEFAULT]\n";
const CONFIG: &str = "[core]\n; I like tables\noutput = table\n\n[cloud]\nname = AzureChinaCloud\n";
const HOSTS: &str = "127.0.0.1 localhost\n10.0.0.7 stack.example.org";

fn site() -> Site {
    let site = Site::start_with(&["--no-containers", "--tls"]);
    site.corro("group create -n demo -l eastus").ok();
    site.corro("storage account create -g demo -n firstaccount -l eastus").ok();
    site
}

/// Runs `corro cloud setup-az` with the test's own home, `az` configuration and hosts file.
fn setup(site: &Site, args: &str) -> CommandOutput {
    let mut command = site.command("corro");
    command.args(["cloud", "setup-az"]).args(args.split_whitespace());
    command.args(["--hosts-file", "hosts"]).env("AZURE_CONFIG_DIR", site.path().join("azure"));
    CommandOutput::from(command.env_remove("REQUESTS_CA_BUNDLE").output().expect("it runs"))
}

/// Every file that `setup` may touch, with its content.
fn files(site: &Site) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for place in ["azure", "config/az"] {
        let entries = fs::read_dir(site.path().join(place)).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| (entry.path(), fs::read(entry.path()).expect("readable"))));
    }
    let hosts = site.path().join("hosts");
    found.extend(fs::read(&hosts).ok().map(|bytes| (hosts, bytes)));
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn undo_restores_every_file_byte_for_byte() {
    let site = site();
    fs::create_dir(site.path().join("azure")).expect("made");
    for (name, content) in [("azure/clouds.config", CLOUDS), ("azure/config", CONFIG), ("hosts", HOSTS)] {
        site.write(name, content);
    }
    let before = files(&site);
    let port = site.url.rsplit(':').next().expect("a port").to_owned();

    let shown = setup(&site, "").ok().stdout;
    assert!(shown.contains(&format!("--endpoint-active-directory https://localhost:{port}/adfs")), "{shown}");
    assert!(shown.contains("127.0.0.1 firstaccount.file.localhost firstaccount.blob.localhost"), "{shown}");
    assert_eq!(files(&site), before, "showing writes nothing");

    let said = setup(&site, "--write").ok().stdout;
    assert!(said.contains("active before: AzureChinaCloud") && said.contains("firstaccount"), "{said}");
    for secret in [site.profile()["clientSecret"].as_str().expect("text"), &account_key(&site)] {
        assert!(!said.contains(secret) && !shown.contains(secret), "a secret is shown");
        let kept = files(&site);
        assert!(!kept.values().any(|bytes| String::from_utf8_lossy(bytes).contains(secret)), "a secret is written");
    }
    let (clouds, config) = (site.path().join("azure/clouds.config"), site.path().join("azure/config"));
    assert!(text(&clouds).starts_with(CLOUDS) && text(&clouds).contains("\n[corro]\n"), "{}", text(&clouds));
    assert_eq!(text(&config), CONFIG.replace("AzureChinaCloud", "corro"));
    assert!(text(&site.path().join("hosts")).starts_with(HOSTS));
    let env_file = text(&site.path().join("config/az/corro-az.sh"));
    let bundle = site.path().join("config/az/ca-bundle.pem");
    assert!(env_file.contains(&format!("export REQUESTS_CA_BUNDLE={}", bundle.display())), "{env_file}");
    let authority = text(&site.data().join("tls/ca.pem"));
    assert!(text(&bundle).ends_with(&authority));

    // A second run changes nothing. With another account, its names are added.
    let written = files(&site);
    let again = setup(&site, "--write").ok().stdout;
    assert!(again.starts_with("az is set up already"), "{again}");
    assert_eq!(files(&site), written);
    site.corro("storage account create -g demo -n secondaccount -l eastus").ok();
    setup(&site, "--write").ok();
    let hosts = text(&site.path().join("hosts"));
    assert!(hosts.contains("127.0.0.1 secondaccount.file.localhost") && hosts.matches("BEGIN").count() == 1, "{hosts}");

    // As `az` leaves its files after a login: rewritten, with the subscription in use.
    let by_az = "[stack]\nendpoint_management = https://stack.example.org\n\n[corro]\nsubscription = s\n\n";
    site.write("azure/clouds.config", by_az);
    let said = setup(&site, "--undo").ok().stdout;
    assert!(said.contains("active is AzureChinaCloud"), "{said}");
    assert_eq!(files(&site), before);
    assert!(!site.path().join("config/az").exists());
    let said = setup(&site, "--undo").ok().stdout;
    assert!(said.contains("nothing to undo"), "{said}");
    assert_eq!(files(&site), before);
}

#[test]
fn a_write_that_was_cut_short_is_undone_and_others_work_stays() {
    let site = site();
    // Nothing existed before, not even a directory; only the hosts file always does.
    site.write("hosts", HOSTS);
    let before = files(&site);
    setup(&site, "--write").ok();
    assert!(site.path().join("azure/config").exists());
    // As after a power loss before the last files were written.
    fs::remove_file(site.path().join("azure/config")).expect("removed");
    site.write("hosts", HOSTS);
    setup(&site, "--undo").ok();
    assert_eq!(files(&site), before);
    assert!(!site.path().join("azure").exists());

    setup(&site, "--write").ok();
    let clouds = site.path().join("azure/clouds.config");
    site.write("azure/clouds.config", text(&clouds) + "\n[mine]\nendpoint_management = https://m\n");
    site.write("azure/config", "[cloud]\nname = mine\n");
    site.write("hosts", text(&site.path().join("hosts")) + "10.0.0.8 new\n");
    setup(&site, "--undo").ok();
    assert_eq!(text(&clouds).trim(), "[mine]\nendpoint_management = https://m");
    assert_eq!(text(&site.path().join("azure/config")), "[cloud]\nname = mine\n");
    assert_eq!(text(&site.path().join("hosts")), format!("{HOSTS}\n10.0.0.8 new\n"));
}

#[test]
fn refusals_name_the_remedy() {
    let site = site();
    site.write("hosts", HOSTS);
    fs::create_dir(site.path().join("azure")).expect("made");
    site.write("azure/clouds.config", "[corro]\nendpoint_management = https://another.example.org\n");
    let before = files(&site);
    setup(&site, "--write").fails(1, &["another cloud named 'corro'", "--cloud NAME"]);
    assert_eq!(files(&site), before);
    setup(&site, "--write --cloud mycorro").ok();
    setup(&site, "--write --cloud other").fails(1, &["already, with the cloud 'mycorro'", "--undo"]);
    setup(&site, "--undo").ok();
    assert_eq!(files(&site), before);
    setup(&site, "--write --cloud AzureCloud").fails(2, &["none of az's own names"]);
    setup(&site, "--write --undo").fails(2, &["cannot be used with"]);
    let plain = Site::start();
    setup(&plain, "").fails(1, &["az logs in over https only", "'corro up --tls'", "show-connection-string"]);
    assert!(setup(&plain, "--undo").ok().stdout.contains("nothing to undo"));
}

#[test]
fn the_real_az_works_with_the_written_files_and_their_undo() {
    let Some(az) = azure_client("az") else { return };
    let names = ["-m", "-rm"].into_iter().find(|flags| {
        let probe = Command::new("unshare").args([flags, "mount", "--bind", "/etc/hosts", "/etc/hosts"]).output();
        probe.is_ok_and(|output| output.status.success())
    });
    let Some(names) = names else {
        skip::unsupported_machine(
            "this user may not make a mount namespace, so az cannot have a hosts file of its own",
        );
        return;
    };
    let site = site();
    fs::create_dir(site.path().join("azure")).expect("made");
    site.write("hosts", HOSTS);
    site.write("azure/config", "; mine\n[core]\noutput = json\n");
    // A user who is logged in elsewhere: that subscription is in use.
    let login = r#"{"id": "11111111-2222-3333-4444-555555555555", "name": "theirs", "state": "Enabled",
        "user": {"name": "me@example.org", "type": "user"}, "isDefault": true,
        "tenantId": "66666666-7777-8888-9999-000000000000", "environmentName": "AzureCloud"}"#;
    site.write("azure/azureProfile.json", format!("\u{feff}{{\"subscriptions\": [{login}]}}"));
    let before = files(&site);
    setup(&site, "--write").ok();
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount --bind hosts /etc/hosts; source config/az/corro-az.sh\n{script}");
        command.args([names, "bash", "-ec", &script]).current_dir(site.path()).stdin(Stdio::null()).env_clear();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{}/bin:{path}", site.path().display(), az.display()));
        command.env("HOME", site.home()).env("CORRO_CONFIG_DIR", site.path().join("config"));
        command.env("AZURE_CONFIG_DIR", site.path().join("azure"));
        command.env("AZURE_CORE_COLLECT_TELEMETRY", "no").env("PYTHONWARNINGS", "ignore");
        CommandOutput::from(command.output().expect("it runs"))
    };
    // As printed by the command itself.
    let steps = setup(&site, "").ok().stdout;
    let login: Vec<&str> = steps.lines().skip_while(|line| !line.starts_with("4. ")).skip(2).take(3).collect();
    run(&login.join("\n")).ok();
    assert!(!site.path().join("az-password").exists());
    assert_eq!(run("az group list --query [].name -o tsv").ok().stdout, "demo\n");
    run("az storage share create --name myshare --account-name firstaccount").ok();
    let shares = run("az storage share list --account-name firstaccount --query [].name -o tsv").ok().stdout;
    assert_eq!(shares, "myshare\n");
    run("az storage container list --account-name firstaccount").ok();

    setup(&site, "--undo").ok();
    let mut after = files(&site);
    // Files that az always creates for itself.
    after.retain(|path, _| !path.ends_with("az.json") && !path.ends_with("az.sess"));
    assert_eq!(after, before);
}

fn account_key(site: &Site) -> String {
    let keys = site.corro("storage account keys list -g demo -n firstaccount").json();
    keys[0]["value"].as_str().expect("a key").to_owned()
}
