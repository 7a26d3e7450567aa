//! Low-priority nodes: preempted by hand and for dedicated clusters, with a warning, a grace period and a retry.

use serde_json::{Value, json};

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};

/// Saves its work on the warning, and succeeds once it finds that work. Variants that ignore the warning are killed.
const TRAINING: &str = "save=$AZ_BATCHAI_OUTPUT_SAVED/rank-$RANK; \
    if [ -e $save ]; then echo went on from $(cat $save); exit 0; fi; \
    trap 'echo step-7 > $save; exit 0' TERM; echo begun > $AZ_BATCHAI_OUTPUT_SAVED/begun-$RANK; while :; do sleep 0.05; done";

fn create_cluster(site: &Site, name: &str, priority: &str, nodes: usize) {
    let size = "-s Standard_D1 -u me -p not-a-secret";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n {name} {size} --vm-priority {priority} -t {nodes}"))
        .ok();
}

fn idle_nodes(site: &Site, cluster: &str) -> Value {
    let shown = site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n {cluster}")).json();
    shown["nodeStateCounts"]["idleNodeCount"].clone()
}

fn submit_to(site: &Site, cluster: &str, name: &str, nodes: usize, command: &str) {
    let output = json!([{"id": "SAVED", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare", "pathSuffix": "saved"}]);
    let settings = json!({"customMpiSettings": {"commandLine": command}});
    let job = site.job_json(nodes, settings, json!({"outputDirectories": output}));
    site.write(&format!("{name}.json"), job.to_string());
    let at = format!("{IN_WORKSPACE} -e cifar -c {cluster} -n {name}");
    site.corro(&format!("batchai job create {at} -f {name}.json --storage-account-name mystorageaccount")).ok();
}

fn why(site: &Site, job: &str) -> String {
    site.corro(&format!("job why {job} {IN_WORKSPACE} -e cifar")).ok().stdout
}

fn wait_until_begun(site: &Site, job: &str, ranks: usize) {
    let segment = site.job(job)["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
    let saved = site.share().join(segment).join("outputs/saved");
    wait_for("all ranks to begin", || (0..ranks).all(|rank| saved.join(format!("begun-{rank}")).exists()));
}

#[test]
fn a_preempted_node_warns_its_job_which_goes_on_elsewhere_with_the_same_output_directory() {
    let site = Site::start_with(&["--no-containers", "--preemption-grace", "50"]);
    site.prepare(0);
    create_cluster(&site, "low", "lowpriority", 2);
    wait_for("two idle nodes", || idle_nodes(&site, "low") == 2);
    submit_to(&site, "low", "train", 2, TRAINING);
    wait_until_begun(&site, "train", 2);
    let nodes = site.corro("node list").json();
    let running = |node: &Value| node["cluster"] == "low" && node["state"] == "running" && node["job"] == "cifar/train";
    assert!(nodes.as_array().expect("a list").iter().all(running), "{nodes}");
    let node = nodes[1]["nodeId"].as_str().expect("an id").to_owned();

    let taken = site.corro(&format!("node preempt {node}")).ok();
    assert!(taken.stderr.contains("cifar/train get SIGTERM now and SIGKILL after 50 s"), "{}", taken.stderr);
    // Saving its work does not end it: it is requeued, gets two nodes again, and continues.
    let job = site.wait_for_end("train");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    let lost = &job["lostAttempts"];
    assert_eq!((&lost[0]["reason"]["code"], &lost[1]), (&json!("NodePreempted"), &Value::Null), "{job}");
    assert_eq!(site.log("train", "stdout.txt"), "went on from step-7\nwent on from step-7\n");
    let text = why(&site, "train");
    assert!(text.contains("Attempt 1 ended at ") && text.contains(&format!("node {node} was preempted")), "{text}");

    // The node is gone and replaced, and the history records all of it.
    wait_for("two idle nodes again", || idle_nodes(&site, "low") == 2);
    wait_for("the node to be gone", || !site.corro("node list").json().to_string().contains(&node));
    let history = |kind: &str| site.corro(&format!("admin history --kind {kind}")).json();
    assert!(history("node.preempted").to_string().contains(&node));
    assert_eq!(history("job.requeued")[0]["detail"]["code"], "NodePreempted");

    // A dedicated node cannot be preempted, nor can a missing one.
    create_cluster(&site, "own", "dedicated", 1);
    wait_for("an idle node", || idle_nodes(&site, "own") == 1);
    let nodes = site.corro("node list").json();
    let own = nodes.as_array().expect("a list").iter().find(|node| node["cluster"] == "own").expect("a node");
    site.corro(&format!("node preempt {}", own["nodeId"].as_str().expect("an id")))
        .fails(1, &["belongs to the dedicated cluster own", "resize the cluster instead"]);
    site.corro("node preempt tvm-1_1-20180718t174802z-p").fails(3, &["there is no node", "corro node list"]);
}

#[test]
fn dedicated_clusters_take_low_priority_nodes_back_when_cores_are_short() {
    let site = Site::start_with(&["--no-containers", "--max-cores", "2", "--preemption-grace", "0.2"]);
    site.prepare(0);
    create_cluster(&site, "low", "lowpriority", 2);
    wait_for("two idle nodes", || idle_nodes(&site, "low") == 2);
    // Ranks that ignore the warning, so that the grace period ends them.
    let stubborn = format!("trap '' TERM; echo begun > $AZ_BATCHAI_OUTPUT_SAVED/begun-$RANK; {}", wait_at("go"));
    submit_to(&site, "low", "stubborn", 2, &stubborn);
    wait_until_begun(&site, "stubborn", 2);

    create_cluster(&site, "own", "dedicated", 1);
    wait_for("the dedicated node", || idle_nodes(&site, "own") == 1);
    let job = site.wait_for_state("stubborn", &["queued"]);
    assert_eq!(job["lostAttempts"][0]["reason"]["code"], "NodePreempted", "{job}");
    let shown = |cluster: &str| site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n {cluster}")).json();
    wait_for("one low-priority node", || shown("low")["currentNodeCount"] == 1);
    let text = why(&site, "stubborn");
    assert!(text.contains("1 without free cores") && text.contains("--max-cores"), "{text}");
    assert!(text.contains("a dedicated cluster needed its capacity"), "{text}");

    // Once there is capacity again, the cluster is filled up and the job continues.
    site.open_gate("go");
    site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n own -y")).ok();
    assert_eq!(site.wait_for_end("stubborn")["executionState"], "succeeded");
}
