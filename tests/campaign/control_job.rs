//! Control job on a node that no fault targets: it must finish in one attempt regardless of faults of other jobs, the server,
//! its clock, its disk or its restored copies.

use serde_json::json;

use super::harness::{IN_WORKSPACE, Site, wait_for};

pub struct ControlJob {
    pub node: String,
}

const NAME: &str = "control";

impl ControlJob {
    /// Starts it, with a time limit that every jump of the clock exceeds.
    pub fn start(site: &Site) -> Self {
        let before = site.agents();
        let size = "--vm-size Standard_NC6 --user-name me --password not-a-secret";
        site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n {NAME} {size} --target 1")).ok();
        site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n {NAME}")).ok();
        let release = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/release";
        let command = format!("echo started; until [ -e {release} ]; do sleep 0.2; done; echo done");
        let job = site.job_json(
            1,
            json!({"customToolkitSettings": {"commandLine": command}}),
            json!({"constraints": {"maxWallClockTime": "PT3H"}}),
        );
        site.write("control.json", job.to_string());
        site.corro(&format!(
            "batchai job create {IN_WORKSPACE} -e {NAME} -c {NAME} -n {NAME} -f control.json --storage-account-name mystorageaccount"
        ))
        .ok();
        wait_for("the control job to run", || Self::show(site)["executionState"] == "running");
        let node =
            site.agents().into_iter().find(|agent| !before.contains(agent)).expect("the node of the control job").0;
        Self { node }
    }

    /// Lets it end, and returns its violations.
    pub fn findings(&self, site: &Site) -> Vec<String> {
        std::fs::write(site.share().join("release"), "").expect("a file on the share");
        let mut job = serde_json::Value::Null;
        wait_for("the control job to end", || {
            job = Self::show(site);
            job["executionState"] == "succeeded" || job["executionState"] == "failed"
        });
        let mut findings = Vec::new();
        if job["executionState"] != "succeeded" {
            findings.push(format!("the control job failed: {}", job["executionInfo"]));
        }
        if job["lostAttempts"].as_array().is_some_and(|lost| !lost.is_empty()) {
            findings.push(format!("the control job was begun again: {}", job["lostAttempts"]));
        }
        let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("text");
        let log = std::fs::read_to_string(site.share().join("cifar").join(segment).join("stdouterr/stdout.txt"));
        if log.as_deref().ok() != Some("started\ndone\n") {
            findings.push(format!("the log of the control job: {log:?}"));
        }
        findings
    }

    fn show(site: &Site) -> serde_json::Value {
        site.corro(&format!("batchai job show {IN_WORKSPACE} -e {NAME} -n {NAME}")).json()
    }
}
