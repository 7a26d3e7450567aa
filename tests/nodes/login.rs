//! Login to a node with OpenSSH, at the address that the server reports.

use std::process::Command;

use corro_test_support::skip;
use serde_json::{Value, json};

use crate::harness::{IN_WORKSPACE, Site, wait_for};

#[test]
fn the_administrator_logs_in_where_the_server_says() {
    let site = Site::start();
    site.prepare(0);
    let key = site.path().join("id");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "rsa", "-N", "", "-f"]).arg(&key).status();
    if made.is_err() {
        skip::missing_component("OpenSSH is not installed here (apt-get install openssh-client)");
        return;
    }
    let size = "--vm-size Standard_D1 --user-name demoUser --ssh-key id.pub --target 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n doors {size}")).ok();
    let mut doors = Value::Null;
    wait_for("the node's door to be open", || {
        doors = site.corro(&format!("batchai cluster node list {IN_WORKSPACE} -c doors")).json();
        doors[0]["port"].as_f64().is_some()
    });
    let (address, port) =
        (doors[0]["ipAddress"].as_str().expect("an address"), doors[0]["port"].as_f64().expect("a port"));
    assert!(port >= 50_000.0, "{doors}");
    let ssh = |words: &str| {
        let output = Command::new("ssh")
            .args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
            .args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-i"])
            .arg(&key)
            .args(["-p", &port.to_string(), &format!("demoUser@{address}"), words])
            .env_remove("SSH_AUTH_SOCK")
            .output()
            .expect("ssh runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    assert_eq!(ssh("echo $USER; exit 4"), ("demoUser\n".to_owned(), Some(4)));
    site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n doors -y")).ok();
    assert_eq!(ssh("true").1, Some(255), "the door went with the node");
}

/// Over the API itself, without a client.
#[test]
fn a_job_lists_the_nodes_it_ran_on_as_long_as_they_exist() {
    let site = Site::start();
    site.prepare(2);
    let list = |resource: &str| {
        let path = format!("{}/{resource}/listRemoteLoginInformation", site.workspace());
        site.arm("POST", &path, Value::Null).is(200).json()["value"].as_array().expect("a list").clone()
    };
    let mut doors = Vec::new();
    wait_for("both doors to be open", || {
        doors = list("clusters/nc6cluster");
        doors.len() == 2
    });
    for door in &doors {
        assert!(door["nodeId"].as_str().is_some_and(|id| id.starts_with("tvm-")), "{door}");
        assert!(door["ipAddress"].is_string() && door["port"].is_number(), "{door}");
    }
    site.submit_custom("waits", 1, "while [ ! -e $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/go ]; do sleep 0.1; done");
    site.wait_for_state("waits", &["running"]);
    let used = list("experiments/cifar/jobs/waits");
    assert!(matches!(&used[..], [door] if doors.contains(door)), "{used:?} of {doors:?}");
    // While one node is busy, the other takes this one.
    site.submit_custom("ends", 1, "true");
    assert_eq!(site.wait_for_end("ends")["executionState"], "succeeded");
    let other = list("experiments/cifar/jobs/ends");
    assert!(matches!(&other[..], [door] if doors.contains(door) && *door != used[0]), "{other:?} of {doors:?}");
    std::fs::write(site.share().join("go"), "").expect("written");
    site.wait_for_end("waits");
    assert_eq!(list("experiments/cifar/jobs/waits"), used);

    // A job that never had a node has none, and removed nodes are not listed.
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster -t 0")).ok();
    wait_for("the nodes to be gone", || list("clusters/nc6cluster").is_empty());
    site.submit_custom("queued", 1, "true");
    for job in ["queued", "waits", "ends"] {
        assert_eq!(json!(list(&format!("experiments/cifar/jobs/{job}"))), json!([]), "{job}");
    }
}
