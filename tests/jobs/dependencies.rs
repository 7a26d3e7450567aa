//! Jobs that wait for other jobs.

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

fn command(line: &str) -> Value {
    json!({"customToolkitSettings": {"commandLine": line}})
}

fn why(site: &Site, name: &str) -> String {
    site.corro(&format!("job why {name} {IN_WORKSPACE} -e cifar")).ok().stdout
}

/// A chain of three jobs over a kill of the server; meanwhile a later job takes the idle node.
#[test]
fn a_chain_runs_in_order_and_survives_a_killed_server() {
    let mut site = Site::start();
    site.prepare(2);
    let says = |name: &str| format!("echo {name} >> $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/order");
    site.submit_with("data", 1, command(&format!("{}; {}", wait_at("go"), says("data"))), json!({}));
    site.submit_with("train", 2, command(&says("train")), json!({"dependsOn": ["data"]}));
    site.submit_with("report", 1, command(&says("report")), json!({"dependsOn": ["cifar/train", "DATA"]}));
    site.submit_with("other", 1, command("true"), json!({}));
    assert_eq!(site.wait_for_end("other")["executionState"], "succeeded", "no node is kept for a job that waits");
    site.wait_for_state("data", &["running"]);
    let train = site.job("train");
    assert_eq!(
        (&train["executionState"], &train["waitingFor"]),
        (&json!("queued"), &json!("job data must succeed first"))
    );
    assert_eq!(site.job("report")["waitingFor"], "the jobs train and data must succeed first");
    let text = why(&site, "train");
    assert!(text.starts_with("The job \"train\" waits: job data must succeed first.\n"), "{text}");
    assert!(text.contains("the success of data, which is running"), "{text}");

    site.kill_server();
    site.up();
    assert_eq!(site.job("train")["waitingFor"], "job data must succeed first");
    site.open_gate("go");
    for name in ["report", "train", "data"] {
        assert_eq!(site.wait_for_end(name)["executionState"], "succeeded", "{name}");
    }
    assert_eq!(site.on_share("order"), "data\ntrain\nreport\n");
}

#[test]
fn a_failed_job_fails_those_that_wait_for_it() {
    let site = Site::start();
    site.prepare(1);
    site.submit_with("data", 1, command(&format!("{}; exit 3", wait_at("go"))), json!({}));
    site.submit_with("train", 1, command("true"), json!({"dependsOn": ["data"]}));
    site.submit_with("report", 1, command("true"), json!({"dependsOn": ["train"]}));
    let refused = site.submit("typo", &site.job_json(1, command("true"), json!({"dependsOn": ["dta"]})));
    refused.fails(1, &["there is no job 'dta' in experiment 'cifar'", "properties.dependsOn[0]"]);
    site.open_gate("go");
    let error = |name: &str| {
        let job = site.wait_for_end(name);
        assert_eq!(job["executionInfo"]["exitCode"], Value::Null, "{job}");
        job["executionInfo"]["errors"][0].clone()
    };
    let train = error("train");
    assert_eq!(train["code"], "DependencyFailed", "{train}");
    let message =
        "The job was not started because job data failed with exit code 3: fix the cause, then submit both jobs again";
    assert_eq!(train["message"], message);
    let report = error("report")["message"].to_string();
    assert!(
        report.contains("because job train, for which it waited, was not either: job data failed with exit code 3"),
        "{report}"
    );
    let text = why(&site, "train");
    assert!(text.contains(message) && text.contains("'corro job why data -g "), "{text}");

    // A deleted or terminated job counts as failed.
    site.submit_with("stopped", 1, command("sleep 600"), json!({}));
    site.submit_with("late", 1, command("true"), json!({"dependsOn": ["stopped"]}));
    site.wait_for_state("stopped", &["running"]);
    site.corro(&format!("batchai job delete {IN_WORKSPACE} -e cifar -n stopped --yes")).ok();
    let late = error("late")["message"].to_string();
    assert!(late.contains("because job stopped was deleted"), "{late}");
    wait_for("no process of the job", || site.node_processes().is_empty());
}
