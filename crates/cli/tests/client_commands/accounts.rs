//! Groups and storage accounts: every verb, what is printed and what is refused.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{World, text};

#[test]
fn groups_with_labels() {
    let mut world = World::new();
    world.start("127.0.0.1:0");
    let made = world.json("group create -n g -l eastus --tags team=a cost=");
    assert_eq!(made["tags"], json!({"team": "a", "cost": ""}));
    assert_eq!(made["managedBy"], Value::Null);
    world.out("group create -g h -l westus --tags team=b");
    assert_eq!(world.out("group list --tag team --query [].name -o tsv"), "g\nh\n");
    assert_eq!(world.out("group list --tag team=b --query [].name -o tsv"), "h\n");
    assert_eq!(world.out("group list --tag team=c"), "[]\n");
    assert_eq!(world.run("group list --tag =x").status.code(), Some(2));
    assert_eq!((world.out("group exists -n g"), world.out("group exists -n x")), ("true\n".into(), "false\n".into()));
    assert_eq!(world.run("group show -n x").status.code(), Some(3));
    world.fails(
        "group delete -n x",
        1,
        "error: Resource group 'x' could not be found.\n\nhint: list the groups with 'corro group list', or make one with 'corro group create -n GROUP -l eastus'\n",
    );
    world.out("group delete -n h --yes");
    assert_eq!(world.out("group exists -n h"), "false\n");
}

#[test]
fn deleting_a_group_says_what_is_lost_before_it_asks() {
    let mut world = World::new();
    world.start("127.0.0.1:0");
    for line in [
        "group create -n g -l eastus",
        "batchai workspace create -g g -n w",
        "batchai experiment create -g g -w w -n e1",
        "batchai experiment create -g g -w w -n e2",
        "storage account create -g g -n acc",
    ] {
        world.out(line);
    }
    let said = answer_on_a_terminal(&world, &["group", "delete", "-n", "g"], "n\n");
    let expected = "Deleting the resource group 'g' also deletes:\r\n  workspace w: 0 clusters, 2 experiments with all jobs\r\n  storage account acc: all shares, containers and files\r\nAre you sure you want to perform this operation? (y/n): ";
    assert!(said.contains(expected), "{said}");
    assert_eq!(world.out("group exists -n g"), "true\n");
    let said = answer_on_a_terminal(&world, &["storage", "account", "delete", "-g", "g", "-n", "acc"], "y\n");
    assert!(said.contains("This deletes every share, container and file of acc."), "{said}");
    assert_eq!(world.out("storage account list -g g"), "[]\n");
}

/// Runs a command on a terminal of its own, types `answer`, and returns what the terminal showed.
fn answer_on_a_terminal(world: &World, args: &[&str], answer: &str) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
    let theirs = std::fs::File::options().read(true).write(true).open(name).expect("opened");
    let stdio = || Stdio::from(OwnedFd::from(theirs.try_clone().expect("a handle")));
    let mut child = {
        let mut command = world.command(args);
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        command.spawn().expect("corro starts")
    };
    drop(theirs);
    let mut ours = std::fs::File::from(ours);
    ours.write_all(answer.as_bytes()).expect("typed");
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    // The terminal ends with an error when the last of its users is gone.
    while let Ok(n @ 1..) = ours.read(&mut piece) {
        shown.extend_from_slice(&piece[..n]);
    }
    child.wait().expect("it ends");
    text(&shown)
}

#[test]
fn an_account_keeps_what_it_was_made_with() {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    let made = world.json(
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
    assert_eq!(world.json("storage account show -g g -n acc"), made);
    let id = made["id"].as_str().expect("an id");
    assert_eq!(world.json(&format!("storage account show --ids {id}")), made);
    assert_eq!(world.json("storage account list"), json!([made]));

    let plain = world.json("storage account create -g g -n plain -l westus");
    assert_eq!((&plain["accessTier"], &plain["identity"]), (&Value::Null, &Value::Null));
    assert_eq!(plain["networkRuleSet"]["bypass"], "AzureServices");
    for (args, says) in [
        ("-n bad --default-action Deny", "argument --default-action: "),
        ("-n bad --access-tier Hot", "argument --access-tier: "),
        ("-n bad --https-only true", "leave --https-only out, or start it with --tls"),
        ("-n plain -l eastus", "'plain' already exists in location 'westus' in resource group 'g'"),
        ("-n Bad_Name", "storage account"),
    ] {
        let refused = world.run(&format!("storage account create -g g {args}"));
        assert_eq!(refused.status.code(), Some(1), "{args}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
    assert_eq!(
        world.json("storage account check-name -n acc"),
        json!({"message": "The storage account named acc is already taken.", "nameAvailable": false, "reason": "AlreadyExists"})
    );
    assert_eq!(
        world.json("storage account check-name -n free"),
        json!({"message": null, "nameAvailable": true, "reason": null})
    );
    assert_eq!(world.run("storage account show -g g -n none").status.code(), Some(3));
}

#[test]
fn a_renewed_key_shuts_the_old_one_out() {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    world.out("storage account create -g g -n acc");
    let keys = world.json("storage account keys list -g g -n acc");
    let old = keys[0]["value"].as_str().expect("a key");
    let list =
        |key: &str| world.run(&format!("storage share list --account-name acc --account-key {key}")).status.code();
    assert_eq!(list(old), Some(0));
    let renewed = world.json("storage account keys renew -g g -n acc --key primary");
    assert_ne!(renewed[0]["value"], keys[0]["value"]);
    assert_eq!(renewed[1]["value"], keys[1]["value"]);
    assert_eq!((list(old), list(renewed[0]["value"].as_str().expect("a key"))), (Some(1), Some(0)));

    let shown = world.json("storage account show-connection-string -g g -n acc --key secondary");
    let string = shown["connectionString"].as_str().expect("text");
    let second = keys[1]["value"].as_str().expect("a key");
    assert_eq!(
        string,
        format!(
            "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey={second};BlobEndpoint=http://{address}/acc.blob;FileEndpoint=http://{address}/acc"
        )
    );
    let output = world.command(&["storage", "share", "list", "--connection-string", string]).output();
    assert_eq!(text(&output.expect("corro starts").stdout), "[]\n");
}
