//! Files of a job, as stored in the share and as listed by the service; and the gate, a file for which test jobs wait, so that
//! a test can inspect a running job.

use std::path::PathBuf;

use serde_json::Value;

use super::{IN_WORKSPACE, Site};

/// Shell command that waits for the gate of this name.
pub fn wait_at(gate: &str) -> String {
    format!("until [ -e $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/{gate} ]; do sleep 0.02; done")
}

impl Site {
    pub fn open_gate(&self, gate: &str) {
        std::fs::write(self.share().join("cifar").join(gate), "").expect("the share can be written");
    }

    /// The directory of the job's logs on the server's disk.
    pub fn log_dir(&self, job: &str) -> PathBuf {
        let job = self.job(job);
        let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
        self.share().join("cifar").join(segment).join("stdouterr")
    }

    /// Content of a log on the server's disk; empty if it is missing.
    pub fn log(&self, job: &str, name: &str) -> String {
        let bytes = std::fs::read(self.log_dir(job).join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Content of a file in the share's directory `cifar`; empty if it is missing.
    pub fn on_share(&self, name: &str) -> String {
        std::fs::read_to_string(self.share().join("cifar").join(name)).unwrap_or_default()
    }

    /// Output of `job file list`.
    pub fn files(&self, job: &str) -> Vec<Value> {
        let listed = self.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j {job}")).json();
        listed.as_array().expect("a list").clone()
    }

    pub fn file_names(&self, job: &str) -> Vec<String> {
        self.files(job).iter().map(|file| file["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Submits a job with these settings and additional fields.
    pub fn submit_with(&self, name: &str, nodes: usize, settings: Value, more: Value) {
        self.submit(name, &self.job_json(nodes, settings, more)).ok();
    }
}
