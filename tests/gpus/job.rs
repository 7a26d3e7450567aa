//! A job on a node with two of a machine's three GPUs: it sees these two, one of them loses its power reading and then falls off the bus.

use serde_json::{Value, json};

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};
use crate::{Readings, gpu, start_with_two_gpus, submit, without};

const IN_EXPERIMENT: &str = "-g batchai.horovod -w batchaidev -e cifar";

fn top(site: &Site, name: &str) -> Value {
    site.corro(&format!("job top {name} {IN_EXPERIMENT} -o json")).json()
}

fn metrics(site: &Site) -> String {
    site.arm("GET", "/metrics", Value::Null).is(200).text()
}

#[test]
fn the_gpus_of_a_job_are_seen_until_one_falls_off_the_bus() {
    // Older errors of the log are not the job's.
    let before = ["NVRM: Xid (PCI:0000:10:00): 48, pid=1, name=other-users-program, An uncorrectable double bit error"];
    let readings = Readings::new(&[gpu(0), without(gpu(1), "powerWatts"), gpu(2)]);
    readings.set(&[gpu(0), without(gpu(1), "powerWatts"), gpu(2)], &before);
    let site = start_with_two_gpus(&readings);
    submit(&site, "trains", &format!("echo devices $CUDA_VISIBLE_DEVICES; {}; exit 3", wait_at("fail")));
    site.wait_for_state("trains", &["running"]);

    // The third GPU is not the job's.
    wait_for("the rank's row", || top(&site, "trains").as_array().is_some_and(|rows| !rows.is_empty()));
    let rows = top(&site, "trains");
    let (first, second) = (&rows[0]["gpus"][0], &rows[0]["gpus"][1]);
    assert_eq!(*first, gpu(0), "{rows:#}");
    assert_eq!(*second, without(gpu(1), "powerWatts"), "{rows:#}");
    assert_eq!(rows[0]["gpus"].as_array().map(Vec::len), Some(2), "{rows:#}");
    let table = site.corro(&format!("job top trains {IN_EXPERIMENT} --once")).ok().stdout;
    let lines: Vec<&str> = table.lines().filter(|line| line.ends_with("NVIDIA H200")).collect();
    assert_eq!(lines.len(), 2, "{table}");
    for part in ["90", "12.0 GiB", "140.0 GiB", "612 W", "61 C"] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    assert!(lines[1].contains("91") && !lines[1].contains(" W "), "{}", lines[1]);
    assert_eq!(site.log("trains", "stdout.txt"), "devices 0,1\n");

    // Prometheus, once the server has measured.
    let node = rows[0]["node"].as_str().expect("a node").to_owned();
    let labels = |gpu: u32| {
        let cluster = "batchai.horovod/batchaidev/two";
        format!(
            "{{cluster=\"{cluster}\",node=\"{node}\",gpu=\"{gpu}\",job=\"batchai.horovod/batchaidev/cifar/trains\"}}"
        )
    };
    wait_for("metrics of the GPUs", || metrics(&site).contains("corro_gpu_up"));
    let text = metrics(&site);
    for (name, gpu, value) in [
        ("up", 1, "1"),
        ("utilization_ratio", 0, "0.9"),
        ("memory_used_bytes", 0, "12884901888"),
        ("memory_bytes", 1, "150323855360"),
        ("power_watts", 0, "612.3"),
        ("temperature_celsius", 1, "61"),
        ("ecc_errors", 0, "0"),
    ] {
        let line = format!("corro_gpu_{name}{} {value}", labels(gpu));
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("gpu=\"2\"") && !text.contains(&format!("corro_gpu_power_watts{}", labels(1))), "{text}");

    let counters = || {
        let table = site.log_dir("trains").join(format!("counters/{node}-gpus.csv"));
        std::fs::read_to_string(table).unwrap_or_default()
    };
    wait_for("counters of both GPUs", || counters().lines().count() >= 3);

    // GPU 1 vanishes, and the kernel says why.
    let lost =
        "4,90,123456,-;NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    let others = "4,91,123457,-;NVRM: Xid (PCI:0000:12:00): 31, pid=7, name=other-users-program, MMU Fault";
    readings.set(&[gpu(0), gpu(2)], &[before[0], lost, others]);
    wait_for("the loss", || {
        let rows = top(&site, "trains");
        let second = &rows[0]["gpus"][1];
        second["lost"] == true && second["errors"][0]["xid"] == 79 && second["powerWatts"].is_null()
    });
    let table = site.corro(&format!("job top trains {IN_EXPERIMENT} --once")).ok().stdout;
    assert!(table.contains("NVIDIA H200: LOST (Xid 79)"), "{table}");
    let why = site.corro(&format!("job why trains {IN_EXPERIMENT}")).ok().stdout;
    let sentence = format!("GPU 1 (NVIDIA H200) of node {node} has fallen off the bus");
    assert!(why.contains(&sentence) && why.contains("(Xid 79)"), "{why}");
    wait_for("the metric of the loss", || metrics(&site).contains(&format!("corro_gpu_up{} 0", labels(1))));

    // The job fails because of it.
    site.open_gate("fail");
    let ended = site.wait_for_end("trains");
    assert_eq!(ended["executionState"], "failed", "{ended}");
    let why = site.corro(&format!("job why trains {IN_EXPERIMENT}")).ok().stdout;
    for part in [
        "ended with exit code 3. A GPU of the job has fallen off the bus",
        "    Xid 79 of GPU 1 (0000:11:00): GPU has fallen off the bus.",
        "has to be rebooted",
        "corro docs gpu-xid",
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    let everything = format!("{why}{}", site.log("trains", "execution.log"));
    assert!(
        !everything.contains("Xid 48") && !everything.contains("Xid 31") && !everything.contains("other-users"),
        "{everything}"
    );
    assert!(everything.contains("Error of a GPU in the kernel's log: Xid 79 of GPU 1"), "{everything}");
    // Metrics end with the job.
    assert!(!metrics(&site).contains("corro_gpu_up"));

    let counters = counters();
    let rows: Vec<Vec<&str>> = counters.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0][1..],
        [
            "gpu",
            "utilization_percent",
            "memory_used_mib",
            "memory_total_mib",
            "power_watts",
            "temperature_celsius",
            "ecc_errors_uncorrected"
        ]
    );
    assert_eq!(rows[1][1..], ["0", "90", "12288", "143360", "612.3", "61", "0"], "{counters}");
    assert_eq!(rows[2][1..], ["1", "91", "12288", "143360", "", "61", "0"], "{counters}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len() && row[1] != "2"), "{counters}");

    let resources = json!(
        site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n trains")).json()["executionInfo"]["errors"][0]
            ["details"]
    );
    let details: Vec<&Value> =
        resources.as_array().expect("a list").iter().filter(|detail| detail["name"] == "GpuError").collect();
    assert_eq!(details.len(), 1, "{resources}");
}
