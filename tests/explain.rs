//! `corro job why` on one real server: the text for each failure that can be caused quickly. Unit tests of `model::explain` and
//! `server::app::jobs::queue_status` cover the other texts.

mod harness;
#[path = "explain/programs.rs"]
mod programs;

use harness::logs::wait_at;
use harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

fn why(site: &Site, job: &str) -> String {
    site.corro(&format!("job why {job} {IN_WORKSPACE} -e cifar")).ok().stdout
}

/// The text must contain all of these, and no implementation details.
#[track_caller]
fn says(site: &Site, job: &str, parts: &[&str]) {
    let text = why(site, job);
    for part in parts {
        assert!(text.contains(part), "{job} should say {part:?}:\n{text}");
    }
    assert!(!text.contains("canary-explain"), "{text}");
}

#[test]
fn every_end_is_explained() {
    let site = Site::start();
    site.prepare(2);
    let custom = |command: &str| json!({"customToolkitSettings": {"commandLine": command}});
    let ranks = |command: &str| json!({"customMpiSettings": {"commandLine": command}});
    let submit = |name: &str, nodes: usize, settings: Value, more: Value| site.submit_with(name, nodes, settings, more);
    let none = || json!({});
    let share = |name: &str| {
        json!({"mountVolumes": {"azureFileShares": [
            {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare", "relativeMountPath": "myshare"},
            {"azureFileUrl": format!("https://mystorageaccount.file.core.windows.net/{name}"), "relativeMountPath": "other"}]}})
    };

    submit("code", 2, ranks("if [ $RANK = 1 ]; then echo no such layer >&2; exit 3; fi; exec sleep 600"), none());
    submit("signal", 1, custom("kill -9 $$"), none());
    submit("missing", 1, custom("/opt/none/python train.py"), none());
    submit("prepared", 1, custom("true"), json!({"jobPreparation": {"commandLine": "echo no wheel >&2; exit 9"}}));
    submit("unshared", 1, custom("true"), share("gone"));
    let mut volumes = site.job_json(1, none(), none())["properties"]["mountVolumes"].clone();
    volumes["azureBlobFileSystems"] = json!([{
        "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "containerName": "gone", "relativeMountPath": "box"
    }]);
    submit("unboxed", 1, custom("true"), json!({"mountVolumes": volumes}));
    let mut volumes = site.job_json(1, none(), none())["properties"]["mountVolumes"].clone();
    volumes["unmanagedFileSystems"] = json!([{"mountCommand": "false", "relativeMountPath": "own"}]);
    submit("unmounted", 1, custom("true"), json!({"mountVolumes": volumes}));
    submit("late", 1, custom("exec sleep 600"), json!({"constraints": {"maxWallClockTime": "PT1S"}}));
    for name in ["code", "signal", "missing", "prepared", "unshared", "unboxed", "unmounted", "late"] {
        assert_eq!(site.wait_for_end(name)["executionState"], "failed", "{name}");
    }
    says(
        &site,
        "code",
        &["failed with exit code 3", "Rank 1 on node tvm-", "no such layer", "job file stream", "-j code"],
    );
    says(&site, "signal", &["Rank 0 on node tvm-", "was ended by signal 9 (SIGKILL)", "no memory left"]);
    says(
        &site,
        "missing",
        &[
            "ended with exit code 127",
            "The program /opt/none/python was not found",
            "See 'corro docs command-not-found'",
        ],
    );
    says(&site, "prepared", &["The job preparation on node tvm-", "exit code 9", "no wheel", "no rank was started"]);
    says(
        &site,
        "unshared",
        &["(AZFMountError)", "on node tvm-", "there is no share 'gone'", "corro storage share create -n gone"],
    );
    says(
        &site,
        "unboxed",
        &[
            "(BFSMountError)",
            "on node tvm-",
            "Container 'gone' doesn't exist",
            "corro storage container create -n gone",
        ],
    );
    // Refused where jobs are isolated, and tried where they are not.
    says(&site, "unmounted", &["(UnmanagedMountError)", "on node tvm-", "mountVolumes"]);
    says(&site, "late", &["maxWallClockTime of ", "(JobWallClockTimeExceeded)", "Raise constraints.maxWallClockTime"]);

    // Terminated by users, by its cluster's resize, and with its cluster.
    let secret = json!({"secrets": [{"name": "TOKEN", "value": "canary-explain"}]});
    submit("stopped", 1, custom(&wait_at("never")), secret);
    site.wait_for_state("stopped", &["running"]);
    says(&site, "stopped", &["runs on 1 node of cluster nc6cluster", "It runs on node tvm-", "corro job top stopped"]);
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n stopped --yes")).ok();
    says(&site, "stopped", &["terminated by the user", "corro admin history --resource"]);

    submit("giant", 9, custom("true"), none());
    says(&site, "giant", &["needs 9 nodes and cluster nc6cluster has at most 2", "cluster resize", "-t 9"]);
    submit("busy", 2, ranks(&wait_at("never")), none());
    site.wait_for_state("busy", &["running"]);
    submit("behind", 1, custom("true"), none());
    says(&site, "behind", &["needs 1 node: 0 of cluster nc6cluster are idle now", "1 more idle node: busy ends by "]);
    // Terminated before it started.
    submit("unbegun", 1, custom("true"), none());
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n unbegun --yes")).ok();
    says(&site, "unbegun", &["terminated by the user", "corro admin history --resource"]);

    let cluster = format!("{}/clusters/nc6cluster", site.workspace());
    let scale = json!({"manual": {"targetNodeCount": 1, "nodeDeallocationOption": "terminate"}});
    site.arm("PATCH", &cluster, json!({"properties": {"scaleSettings": scale}})).is(200);
    site.wait_for_end("busy");
    says(&site, "busy", &["its cluster was resized with the option 'terminate'", "A resize with the option 'requeue'"]);
    assert_eq!(site.wait_for_end("behind")["executionState"], "succeeded");
    says(&site, "behind", &["is done: all its processes ended with exit code 0", "It waited 0:"]);

    submit("moved", 1, custom(&wait_at("open")), none());
    site.wait_for_state("moved", &["running"]);
    let scale = json!({"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}});
    site.arm("PATCH", &cluster, json!({"properties": {"scaleSettings": scale}})).is(200);
    site.wait_for_state("moved", &["queued"]);
    says(&site, "moved", &["has at most 0", "Attempt 1 ended at ", "made smaller with the option 'requeue'"]);
    site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n nc6cluster -y")).ok();
    site.wait_for_end("moved");
    says(&site, "moved", &["because its cluster was deleted", "Submit the job to another cluster"]);
}

/// A container without an engine, and nodes whose setup or volumes failed.
#[test]
fn missing_components_are_explained() {
    let site = Site::start_with(&[]);
    site.prepare(1);
    let image = json!({"containerSettings": {"imageSourceRegistry": {"image": "ubuntu"}}});
    site.submit_with("boxed", 1, json!({"customToolkitSettings": {"commandLine": "true"}}), image);
    assert_eq!(site.wait_for_end("boxed")["executionState"], "failed");
    says(&site, "boxed", &["(FailedStartingContainer)", "on node tvm-", "Install and start Docker or Podman"]);

    let volume = |share: &str| {
        json!({"azureFileShares": [{
            "azureFileUrl": format!("https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/{share}"),
            "relativeMountPath": "external"}]})
    };
    let setup = json!({"commandLine": "exit 7", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external"});
    for (name, setup) in [
        ("unready", json!({"setupTask": setup, "mountVolumes": volume("myshare")})),
        ("unmounted", json!({"mountVolumes": volume("gone")})),
    ] {
        let cluster = json!({"properties": {
            "vmSize": "Standard_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}}, "nodeSetup": setup,
            "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"}}});
        site.write("cluster.json", cluster.to_string());
        let account = "--storage-account-name mystorageaccount";
        site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n {name} -f cluster.json {account}")).ok();
        let show = || site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n {name}")).json();
        wait_for("an unusable node", || show()["nodeStateCounts"]["unusableNodeCount"] == 1);
        let job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": "true"}}), json!({}));
        site.write("job.json", job.to_string());
        let job = format!("-n on-{name} -c {name} -f job.json {account}");
        site.corro(&format!("batchai job create {IN_WORKSPACE} -e cifar {job}")).ok();
        let parts =
            ["1 unusable", &format!("1 unusable node of cluster {name} being repaired"), "batchai cluster show"];
        says(&site, &format!("on-{name}"), &parts);
    }
}

/// Unusable nodes, lost nodes, and a region without cores.
#[test]
fn node_failures_are_explained() {
    let site = Site::start_with(&["--no-containers", "--max-cores", "1"]);
    site.prepare(0);
    let create = |name: &str, more: &str| {
        let size = "-s Standard_D1 -u me -p not-a-secret";
        site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n {name} {size} {more}")).ok();
    };
    let submit = |cluster: &str, name: &str, command: &str| {
        let job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": command}}), json!({}));
        site.write(&format!("{name}.json"), job.to_string());
        let at = format!("{IN_WORKSPACE} -e cifar -c {cluster} -n {name}");
        site.corro(&format!("batchai job create {at} -f {name}.json --storage-account-name mystorageaccount")).ok();
    };
    create("own", "-t 1");
    create("low", "--vm-priority lowpriority -t 1");
    submit("low", "poor", "true");
    wait_for("the dedicated node", || site.agents().len() == 1);
    says(&site, "poor", &["1 without free cores", "dedicated clusters come first", "a higher --max-cores"]);
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e cifar -c own -n x -f poor.json --storage-account-name mystorageaccount"
    ))
    .ok();
    assert_eq!(site.wait_for_end("x")["executionState"], "succeeded");

    // Its agent is killed repeatedly: every loss is named.
    submit("own", "unlucky", &wait_at("never"));
    for attempt in 1..=3 {
        let mut node = None;
        wait_for("the job to run on a node with an agent", || {
            let job = site.job("unlucky");
            let lost = job["lostAttempts"].as_array().map_or(0, Vec::len);
            let listed = site.corro("node list").json();
            let on = listed.as_array().expect("a list").iter().find(|node| node["job"] == "cifar/unlucky").cloned();
            node = on.and_then(|on| site.agents().into_iter().find(|(id, _)| on["nodeId"] == *id));
            job["executionState"] == "running" && lost + 1 == attempt && node.is_some()
        });
        harness::signal(node.expect("just found").1, rustix::process::Signal::KILL);
    }
    let job = site.wait_for_end("unlucky");
    assert_eq!(job["executionInfo"]["errors"][0]["code"], "NodeLost", "{job}");
    let losses = ["lost a node in each of 3 attempts", "attempt 1 tvm-", "attempt 2 tvm-", "attempt 3 tvm-"];
    says(&site, "unlucky", &losses);
    says(&site, "unlucky", &["(NodeLost)", "agent.log", "Attempt 2 ended at "]);
}

/// Losses by deleting and resizing are reported on standard error; standard output is unchanged.
#[test]
fn destructive_commands_warn_about_running_jobs() {
    let site = Site::start();
    let made = site.corro("group create -n batchai.horovod -l eastus");
    assert_eq!(made.stderr, "");
    site.prepare(1);
    site.submit_custom("busy", 1, &harness::fault_injection::waiting_rank(""));
    site.wait_for_state("busy", &["running"]);

    let deleted = site.corro("storage share delete -n myshare --account-name mystorageaccount").ok();
    assert!(deleted.stderr.contains("a running job has this share mounted"), "{}", deleted.stderr);
    let resized = site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster -t 0")).ok();
    let said = "warning: running on nodes that are removed: the job \"busy\"; each is stopped and queued again";
    assert!(resized.stderr.contains(said), "{}", resized.stderr);
    site.wait_for_state("busy", &["queued"]);

    let at = format!("{IN_WORKSPACE} -e cifar");
    let refused = site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n nc6cluster"));
    let said = "The cluster \"nc6cluster\" has jobs that will fail: 0 running, 1 queued (\"busy\").";
    assert!(refused.code != 0 && refused.stderr.contains(said), "{}", refused.stderr);
    let deleted = site.corro(&format!("batchai job delete {at} -n busy -y")).ok();
    assert!(deleted.stderr.contains("The job \"busy\" is queued: it will not run."), "{}", deleted.stderr);
    let resized = site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster -t 1")).ok();
    assert_eq!(resized.stderr, "");
}
