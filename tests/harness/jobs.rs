//! Jobs of a site: job files, submission, and waiting for their states.

use serde_json::{Value, json};

use super::{CommandOutput, IN_WORKSPACE, Site, wait_for};

impl Site {
    /// A `job.json` that mounts the share at `myshare` and logs to its directory `cifar`.
    pub fn job_json(&self, nodes: usize, settings: Value, more: Value) -> Value {
        let mut properties = json!({
            "nodeCount": nodes,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
            "mountVolumes": {"azureFileShares": [{
                "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                "relativeMountPath": "myshare"
            }]}
        });
        for part in [settings, more] {
            let part = part.as_object().expect("an object").clone();
            properties.as_object_mut().expect("an object").extend(part);
        }
        json!({ "properties": properties })
    }

    /// Submits a job that runs `command` once, on the master.
    pub fn submit_custom(&self, name: &str, nodes: usize, command: &str) {
        let settings = json!({"customToolkitSettings": {"commandLine": command}});
        self.submit(name, &self.job_json(nodes, settings, json!({}))).ok();
    }

    /// Submits a job that runs `command` as one rank per node.
    pub fn submit_ranks(&self, name: &str, nodes: usize, command: &str) {
        let settings = json!({"customMpiSettings": {"commandLine": command}});
        self.submit(name, &self.job_json(nodes, settings, json!({}))).ok();
    }

    pub fn submit(&self, name: &str, job: &Value) -> CommandOutput {
        let file = format!("{name}.json");
        self.write(&file, job.to_string());
        self.corro(&format!(
            "batchai job create {IN_WORKSPACE} -e cifar -c nc6cluster -n {name} -f {file} --storage-account-name mystorageaccount"
        ))
    }

    pub fn job(&self, name: &str) -> Value {
        self.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n {name}")).json()
    }

    pub fn wait_for_state(&self, name: &str, states: &[&str]) -> Value {
        let mut last = Value::Null;
        wait_for(&format!("{name} to be {states:?}"), || {
            last = self.job(name);
            states.iter().any(|state| last["executionState"] == *state)
        });
        last
    }

    /// Waits until the job has succeeded or failed, and returns it.
    pub fn wait_for_end(&self, name: &str) -> Value {
        self.wait_for_state(name, &["succeeded", "failed"])
    }

    /// Streams the whole content of one of the job's files.
    pub fn stream(&self, job: &str, file: &str) -> CommandOutput {
        self.corro(&format!("batchai job file stream {IN_WORKSPACE} -e cifar -j {job} -f {file}"))
    }
}
