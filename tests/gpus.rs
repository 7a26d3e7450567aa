//! GPUs in view, on machines without any: the state of scripted GPUs through a real server and real nodes to `job top`, the counters, `/metrics`,
//! `host list`, `job why` and the dashboard, and `corro doctor` with a driver that is a test's own.

#[path = "gpus/browser.rs"]
mod browser;
#[path = "gpus/doctor.rs"]
mod doctor;
mod harness;
#[path = "gpus/host.rs"]
mod host;
#[path = "gpus/job.rs"]
mod job;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{IN_WORKSPACE, Site};
use serde_json::{Value, json};

/// The file of readings. Replaced in one step, since nodes read it at any time.
pub struct Readings {
    dir: tempfile::TempDir,
}

impl Readings {
    pub fn new(gpus: &[Value]) -> Readings {
        let readings = Readings { dir: tempfile::tempdir().expect("a directory") };
        readings.set(gpus, &[]);
        readings
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("gpus.json")
    }

    /// `NAME=value` for [`Site::start_with`].
    pub fn variable(&self) -> String {
        format!("CORRO_TEST_GPUS={}", self.path().display())
    }

    pub fn set(&self, gpus: &[Value], kernel_log: &[&str]) {
        let new = self.dir.path().join("new");
        fs::write(&new, json!({"gpus": gpus, "kernelLog": kernel_log}).to_string()).expect("written");
        fs::rename(&new, self.path()).expect("replaced");
    }
}

pub fn gpu(number: u32) -> Value {
    json!({"gpu": number, "name": "NVIDIA H200", "busId": format!("00000000:{:02X}:00.0", 16 + number),
           "utilizationPercent": 90 + number, "memoryUsedBytes": 12_u64 << 30, "memoryTotalBytes": 140_u64 << 30,
           "powerWatts": 612.3, "temperatureCelsius": 61, "eccErrors": 0})
}

/// Without a value that the driver does not report.
pub fn without(mut gpu: Value, field: &str) -> Value {
    gpu.as_object_mut().expect("an object").remove(field);
    gpu
}

/// A server whose one node has two GPUs and writes counters.
pub fn start_with_two_gpus(readings: &Readings) -> Site {
    let site = Site::start_with(&["--no-containers", &readings.variable()]);
    site.prepare(0);
    let cluster = json!({"properties": {
        "vmSize": "Standard_NC12", "scaleSettings": {"manual": {"targetNodeCount": 1}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
        "nodeSetup": {"performanceCountersSettings": {"appInsightsReference": {
            "component": {"id": "/subscriptions/s/insights"}, "instrumentationKey": "key"
        }}}
    }});
    site.write("two.json", cluster.to_string());
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n two -f two.json")).ok();
    site
}

/// Submits a job with one rank to the node with two GPUs.
pub fn submit(site: &Site, name: &str, command: &str) {
    let job = site.job_json(1, json!({"customMpiSettings": {"commandLine": command}}), json!({}));
    site.write("job.json", job.to_string());
    let create = format!("batchai job create {IN_WORKSPACE} -e cifar -c two -n {name} -f job.json");
    site.corro(&format!("{create} --storage-account-name mystorageaccount")).ok();
}

/// Directory of the tests' C sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpus")
}
