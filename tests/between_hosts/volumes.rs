//! Volumes on remote machines: volumes of a cluster, and machines that cannot mount.

use std::fs;

use serde_json::json;

use super::SHORT_LEASE;
use super::harness::machines::{Machines, mounted_on};
use super::harness::{IN_WORKSPACE, Site, wait_for};

fn server(machines: &Machines) -> Site {
    let mut site = Site::unstarted(SHORT_LEASE);
    site.start_server("server", &format!("{}:0", machines.server()), "info,corro_server::http=warn");
    site
}

#[test]
fn a_volume_of_the_cluster_comes_to_another_machine() {
    let Some(machines) = Machines::new(1) else { return };
    let site = server(&machines);
    site.prepare(0);
    let agent = machines.join(&site, 0);
    let volume = "--storage-account-name mystorageaccount --afs-name myshare --afs-mount-path deep";
    let size = "-s Standard_NC6 -u me -p not-a-secret -t 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n far {size} {volume}")).ok();
    let idle = || {
        let cluster = site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n far")).json();
        cluster["nodeStateCounts"]["idleNodeCount"] == 1
    };
    wait_for("the machine to be an idle node", idle);
    assert_eq!(mounted_on(agent.child.id()).len(), 1, "the cluster's share");
    let command = "echo from the node > $AZ_BATCHAI_MOUNT_ROOT/deep/cifar/said; echo done";
    let job = json!({"properties": {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/deep/cifar",
        "customToolkitSettings": {"commandLine": command}
    }});
    site.write("far.json", job.to_string());
    site.corro(&format!("batchai job create {IN_WORKSPACE} -e cifar -c far -n far -f far.json")).ok();
    let ended = site.wait_for_end("far");
    assert_eq!(ended["executionState"], "succeeded", "{ended:#}");
    let said = fs::read_to_string(site.share().join("cifar/said")).expect("a file of the share");
    assert_eq!(said, "from the node\n");
    assert_eq!(site.log("far", "stdout.txt"), "done\n");
    assert_eq!(mounted_on(agent.child.id()).len(), 1, "it stays for the next job");
}

#[test]
fn a_machine_without_fuse_fails_the_job_and_is_named() {
    let Some(machines) = Machines::new(1) else { return };
    let site = server(&machines);
    let devices = "mount -t tmpfs tmpfs /dev && for device in 'null c 1 3' 'zero c 1 5' 'random c 1 8' 'urandom c 1 9'; do \
        mknod -m 666 /dev/$device; done && mkdir /dev/shm && exec \"$@\"";
    let agent = machines.join_with(&site, 0, &["sh", "-c", devices, "sh"], &["--once"]);
    site.prepare(1);
    site.submit_custom("far", 1, "true");
    let failed = site.wait_for_end("far");
    let error = &failed["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "AZFMountError", "{failed:#}");
    let node = agent.node().expect("it has joined");
    let message = error.to_string();
    assert!(message.contains("this machine has no /dev/fuse") && message.contains(&node), "{failed:#}");
}
