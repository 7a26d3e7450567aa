//! Setup tasks: on every node, with the cluster's volumes and secrets; and the reporting and repair of a failed one.

use serde_json::{Value, json};

use crate::harness::{IN_WORKSPACE, Site, wait_for};

/// A cluster named `set` of one node that runs `command` first, with the share mounted at `external`.
fn cluster(site: &Site, command: &str) {
    site.write(
        "set.json",
        json!({"properties": {
            "vmSize": "Standard_D1",
            "scaleSettings": {"manual": {"targetNodeCount": 1}},
            "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
            "nodeSetup": {
                "setupTask": {
                    "commandLine": command,
                    "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/setup",
                    "environmentVariables": [{"name": "PLAIN", "value": "seen"}],
                    "secrets": [{"name": "HIDDEN", "value": "canary-setup-77"}]
                },
                "mountVolumes": {"azureFileShares": [{
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                    "relativeMountPath": "external"
                }]}
            }
        }})
        .to_string(),
    );
    let create = format!("batchai cluster create {IN_WORKSPACE} -n set -f set.json");
    site.corro(&format!("{create} --storage-account-name mystorageaccount")).ok();
}

fn show(site: &Site) -> Value {
    site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n set")).json()
}

fn wait_for_count(site: &Site, kind: &str, n: usize) -> Value {
    let mut last = Value::Null;
    wait_for(&format!("{n} nodes to be {kind}"), || {
        last = show(site);
        last["nodeStateCounts"][format!("{kind}NodeCount")] == n && last["allocationState"] == "steady"
    });
    last
}

#[test]
fn a_setup_task_runs_on_its_node_and_a_failed_one_is_cured_by_a_resize() {
    let site = Site::start();
    site.prepare(0);
    // Fails until the file exists.
    cluster(
        &site,
        "echo $PLAIN ${#HIDDEN}; test -e $AZ_BATCHAI_MOUNT_ROOT/external/mended || { echo broken >&2; exit 3; }",
    );
    let broken = wait_for_count(&site, "unusable", 1);
    let error = &broken["errors"][0];
    assert_eq!(error["code"], "SetupTaskFailed", "{broken}");
    let detail = |name: &str| {
        let details = error["details"].as_array().expect("details");
        let found = details.iter().find(|detail| detail["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {error}"))["value"].as_str().expect("text").to_owned()
    };
    assert_eq!((detail("ExitCode").as_str(), detail("StdErr").as_str()), ("3", "broken"));
    let task = &broken["nodeSetup"]["setupTask"];
    assert_eq!(task["secrets"], json!([{"name": "HIDDEN", "value": null, "valueSecretReference": null}]), "{task}");
    let suffix = task["stdOutErrPathSuffix"].as_str().expect("it is reported");
    assert!(suffix.contains("/batchai.horovod/workspaces/batchaidev/clusters/set/"), "{suffix}");
    let logs = site.share().join("setup").join(suffix);
    let node = detail("Node");
    let stdout = std::fs::read_to_string(logs.join(format!("stdout-{node}.txt"))).expect("the setup task's output");
    assert_eq!(stdout, "seen 15\n");

    std::fs::write(site.share().join("mended"), "").expect("a file on the share");
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n set --target 0")).ok();
    wait_for("the broken node to be gone", || show(&site)["currentNodeCount"] == 0);
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n set --target 1")).ok();
    let cured = wait_for_count(&site, "idle", 1);
    assert!(cured["errors"].is_null(), "{cured}");

    // Its jobs see the cluster's volumes.
    let command = "cat $AZ_BATCHAI_MOUNT_ROOT/external/cifar/hello";
    std::fs::write(site.share().join("cifar/hello"), "from the cluster's volume\n").expect("a file on the share");
    site.write(
        "see.json",
        site.job_json(1, json!({"customToolkitSettings": {"commandLine": command}}), json!({})).to_string(),
    );
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e cifar -c set -n see -f see.json --storage-account-name mystorageaccount"
    ))
    .ok();
    site.wait_for_end("see");
    assert_eq!(site.stream("see", "stdout.txt").ok().stdout.lines().last(), Some("from the cluster's volume"));
}

#[test]
fn an_agent_killed_during_its_setup_task_is_replaced_and_nothing_is_left() {
    let site = Site::start();
    site.prepare(0);
    let command = "cd $AZ_BATCHAI_MOUNT_ROOT/external; if mkdir first; then (setsid sleep 600 &) ; sleep 600; fi";
    cluster(&site, command);
    wait_for("the setup task to run", || site.share().join("first").is_dir());
    let preparing = wait_for_count(&site, "preparing", 1);
    assert!(preparing["errors"].is_null(), "{preparing}");
    let agents = site.agents();
    let [(node, pid)] = &agents[..] else { panic!("one agent: {agents:?}") };
    crate::harness::signal(*pid, rustix::process::Signal::KILL);
    wait_for("its processes to end", || corro_launch::kill_tagged::processes_with_tag(&format!("{node}/")).is_empty());
    wait_for_count(&site, "idle", 1);
}
