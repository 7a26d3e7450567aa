//! A joined machine reports the state of the GPUs that it offers.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::harness::{Site, wait_for};
use crate::{Readings, gpu};

/// Ended with the test.
struct HostProcess(Child);

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_gpus_of_a_host_are_listed_with_their_state() {
    let mut site = Site::unstarted(&["--no-containers", "--tls"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let readings = Readings::new(&[gpu(0), gpu(1), gpu(2)]);
    let token = site.corro("host token").json()["token"].as_str().expect("a token").to_owned();
    let mut command = site.command("corro");
    command.env("CORRO_TEST_GPUS", readings.path());
    command.args(["agent", "join", &site.url, "--token", &token, "--name", "gpu-1", "--gpus", "2"]);
    command.arg("--data").arg(site.path().join("host"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the host starts");
    let _host = HostProcess(child);
    let listed = || site.corro("host list").json();
    wait_for("the state of the GPUs", || !listed()[0]["gpuReadings"].is_null());
    let host = listed()[0].clone();
    assert_eq!(host["gpuReadings"], json!([gpu(0), gpu(1)]), "the third is not offered");
    assert_eq!(host["gpus"].as_array().map(Vec::len), Some(3), "{host:#}");
    let shown = site.corro("host show gpu-1").json();
    assert_eq!(shown["gpuReadings"], host["gpuReadings"]);
    let table = site.corro("host list -o table").ok().stdout;
    for part in ["GPU %", "90 91", "12/140 12/140", "612 612", "61 61", "0 0"] {
        assert!(table.contains(part), "{part}\n{table}");
    }

    readings.set(&[gpu(0)], &[]);
    wait_for("the loss", || listed()[0]["gpuReadings"][1]["lost"] == true);
    assert_eq!(listed()[0]["gpuReadings"][1]["temperatureCelsius"], Value::Null);
}
