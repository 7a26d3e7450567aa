//! Logging in to a node of a cluster with OpenSSH, at the address that the server tells.

use std::process::Command;

use serde_json::Value;

use crate::harness::{IN_WORKSPACE, Site, wait_for};

#[test]
fn the_administrator_logs_in_where_the_server_says() {
    let site = Site::start();
    site.prepare(0);
    let key = site.path().join("id");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "rsa", "-N", "", "-f"]).arg(&key).status();
    if made.is_err() {
        println!("skipped: OpenSSH is not installed here (apt-get install openssh-client)");
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
