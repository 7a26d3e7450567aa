//! Groups and storage accounts: every verb, its output and its errors.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::site::{Site, text};

#[test]
fn groups_with_labels() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    let made = site.json("group create -n g -l eastus --tags team=a cost=");
    assert_eq!(made["tags"], json!({"team": "a", "cost": ""}));
    assert_eq!(made["managedBy"], Value::Null);
    site.out("group create -g h -l westus --tags team=b");
    assert_eq!(site.out("group list --tag team --query [].name -o tsv"), "g\nh\n");
    assert_eq!(site.out("group list --tag team=b --query [].name -o tsv"), "h\n");
    assert_eq!(site.out("group list --tag team=c"), "[]\n");
    assert_eq!(site.run("group list --tag =x").status.code(), Some(2));
    assert_eq!((site.out("group exists -n g"), site.out("group exists -n x")), ("true\n".into(), "false\n".into()));
    assert_eq!(site.run("group show -n x").status.code(), Some(3));
    site.fails(
        "group delete -n x",
        1,
        "error: Resource group 'x' could not be found.\n\nhint: list the groups with 'corro group list', or make one with 'corro group create -n GROUP -l eastus'\n",
    );
    site.out("group delete -n h --yes");
    assert_eq!(site.out("group exists -n h"), "false\n");
}

#[test]
fn deleting_a_group_lists_its_content_before_the_prompt() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    for line in [
        "group create -n g -l eastus",
        "batchai workspace create -g g -n w",
        "batchai experiment create -g g -w w -n e1",
        "batchai experiment create -g g -w w -n e2",
        "storage account create -g g -n acc",
    ] {
        site.out(line);
    }
    let said = answer_on_a_terminal(&site, &["group", "delete", "-n", "g"], "n\n");
    let expected = "Deleting the resource group 'g' also deletes:\r\n  workspace w: 0 clusters, 2 experiments with all jobs\r\n  storage account acc: all shares, containers and files\r\nAre you sure you want to perform this operation? (y/n): ";
    assert!(said.contains(expected), "{said}");
    assert_eq!(site.out("group exists -n g"), "true\n");
    let said = answer_on_a_terminal(&site, &["storage", "account", "delete", "-g", "g", "-n", "acc"], "y\n");
    assert!(said.contains("This deletes every share, container and file of acc."), "{said}");
    assert_eq!(site.out("storage account list -g g"), "[]\n");
}

/// Runs a command on a pseudo-terminal, types `answer`, and returns the terminal's output.
fn answer_on_a_terminal(site: &Site, args: &[&str], answer: &str) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
    let theirs = std::fs::File::options().read(true).write(true).open(name).expect("opened");
    let stdio = || Stdio::from(OwnedFd::from(theirs.try_clone().expect("a handle")));
    let mut child = {
        let mut command = site.command(args);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        command.spawn().expect("corro starts")
    };
    drop(theirs);
    let mut ours = std::fs::File::from(ours);
    ours.write_all(answer.as_bytes()).expect("typed");
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    // Reading fails with EIO when the last process has closed the terminal.
    while let Ok(n @ 1..) = ours.read(&mut piece) {
        shown.extend_from_slice(&piece[..n]);
    }
    child.wait().expect("it ends");
    text(&shown)
}

#[test]
fn an_account_keeps_its_properties() {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    let made = site.json(
        "storage account create -g g -n acc --sku standard_lrs --kind storagev2 --tags a=b --access-tier cool \
         --encryption-services blob file queue --custom-domain www.example.com --assign-identity --bypass Logging Metrics"
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .as_str(),
    );
    let at = |path: &str| made.pointer(path).unwrap_or_else(|| panic!("no {path} in {made}")).clone();
    for (path, expected) in [
        ("/sku/name", json!("Standard_LRS")),
        ("/sku/tier", json!("Standard")),
        ("/kind", json!("StorageV2")),
        ("/location", json!("eastus")),
        ("/tags", json!({"a": "b"})),
        ("/accessTier", json!("Cool")),
        ("/customDomain/name", json!("www.example.com")),
        ("/identity/type", json!("SystemAssigned")),
        ("/encryption/keySource", json!("Microsoft.Storage")),
        ("/encryption/services/queue/enabled", json!(true)),
        ("/encryption/services/table", Value::Null),
        ("/networkRuleSet/bypass", json!("Logging, Metrics")),
        ("/networkRuleSet/defaultAction", json!("Allow")),
        ("/primaryEndpoints/file", json!(format!("http://{address}/acc/"))),
        ("/primaryEndpoints/queue", json!(format!("http://{address}/acc/"))),
        ("/lastGeoFailoverTime", Value::Null),
        ("/resourceGroup", json!("g")),
    ] {
        assert_eq!(at(path), expected, "{path}");
    }
    assert!(at("/identity/principalId").is_string() && at("/encryption/services/blob/lastEnabledTime").is_string());
    assert_eq!(site.json("storage account show -g g -n acc"), made);
    let id = made["id"].as_str().expect("an id");
    assert_eq!(site.json(&format!("storage account show --ids {id}")), made);
    assert_eq!(site.json("storage account list"), json!([made]));

    let plain = site.json("storage account create -g g -n plain -l westus");
    assert_eq!((&plain["accessTier"], &plain["identity"]), (&Value::Null, &Value::Null));
    assert_eq!(plain["networkRuleSet"]["bypass"], "AzureServices");
    for (args, says) in [
        ("-n bad --default-action Deny", "argument --default-action: "),
        ("-n bad --access-tier Hot", "argument --access-tier: "),
        ("-n bad --https-only true", "leave --https-only out, or start it with --tls"),
        ("-n plain -l eastus", "'plain' already exists in location 'westus' in resource group 'g'"),
        ("-n Bad_Name", "storage account"),
    ] {
        let refused = site.run(&format!("storage account create -g g {args}"));
        assert_eq!(refused.status.code(), Some(1), "{args}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
    assert_eq!(
        site.json("storage account check-name -n acc"),
        json!({"message": "The storage account named acc is already taken.", "nameAvailable": false, "reason": "AlreadyExists"})
    );
    assert_eq!(
        site.json("storage account check-name -n free"),
        json!({"message": null, "nameAvailable": true, "reason": null})
    );
    assert_eq!(site.run("storage account show -g g -n none").status.code(), Some(3));
}

#[test]
fn a_renewed_key_replaces_the_old_one() {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    site.out("storage account create -g g -n acc");
    let keys = site.json("storage account keys list -g g -n acc");
    let old = keys[0]["value"].as_str().expect("a key");
    let list =
        |key: &str| site.run(&format!("storage share list --account-name acc --account-key {key}")).status.code();
    assert_eq!(list(old), Some(0));
    let renewed = site.json("storage account keys renew -g g -n acc --key primary");
    assert_ne!(renewed[0]["value"], keys[0]["value"]);
    assert_eq!(renewed[1]["value"], keys[1]["value"]);
    assert_eq!((list(old), list(renewed[0]["value"].as_str().expect("a key"))), (Some(1), Some(0)));

    let shown = site.json("storage account show-connection-string -g g -n acc --key secondary");
    let string = shown["connectionString"].as_str().expect("text");
    let second = keys[1]["value"].as_str().expect("a key");
    assert_eq!(
        string,
        format!(
            "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey={second};BlobEndpoint=http://{address}/acc.blob;FileEndpoint=http://{address}/acc"
        )
    );
    let output = site.command(&["storage", "share", "list", "--connection-string", string]).output();
    assert_eq!(text(&output.expect("corro starts").stdout), "[]\n");
}
