//! The collective engine between machines: rendezvous at the first node, traffic over the configured network, listeners on the
//! configured ports.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;

use corro_test_support::skip;
use serde_json::json;

use super::harness::host::find_program;
use super::harness::machines::Machines;
use super::harness::{Site, wait_for};
use super::{Rack, SHORT_LEASE, start_rack_with};

const PORTS: RangeInclusive<u16> = 21000..=21031;

/// The tutorial's training, with its share on another machine than its ranks.
#[test]
fn a_training_over_machines_keeps_to_its_network_and_ports_and_leaves_its_model_on_the_share() {
    let words = |machines: &super::Machines, machine: usize| {
        let (address, ports) = (machines.add_network(machine), format!("{}-{}", PORTS.start(), PORTS.end()));
        ["--address", &address, "--ports", &ports].map(str::to_owned).to_vec()
    };
    let Some(rack) = start_rack_with(2, SHORT_LEASE, words) else { return };
    let before = [listening(&rack, 0), listening(&rack, 1)];
    let settings = json!({"epochs": 4, "batch": 8, "synthetic": {"train": 120, "test": 40}});
    fs::write(rack.site.share().join("cifar/settings.json"), settings.to_string()).expect("a file of the share");
    let corro = rack.site.command("corro").get_program().to_string_lossy().into_owned();
    let horovod = json!({"horovodSettings": {
        "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/settings.json",
        "pythonInterpreterPath": format!("{corro} train"),
        "commandLineArgs": "--dir=$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
        "processCount": 4
    }});
    rack.site.submit("gang", &rack.site.job_json(2, horovod, json!({}))).ok();
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    let mut job = serde_json::Value::Null;
    wait_for("the training to end", || {
        for (machine, seen) in seen.iter_mut().enumerate() {
            seen.extend(listening(&rack, machine).difference(&before[machine]));
        }
        job = rack.site.job("gang");
        job["executionState"] == "succeeded" || job["executionState"] == "failed"
    });
    let log = rack.site.log("gang", "stdout.txt");
    assert_eq!(
        job["executionState"],
        "succeeded",
        "{job:#}\n{log}\n{}\n{}",
        rack.site.log("gang", "stderr.txt"),
        rack.logs()
    );
    assert!(seen.iter().flatten().all(|port| PORTS.contains(port)), "{seen:?}");
    assert!(seen.iter().all(|seen| seen.len() >= 2), "two ranks on each: {seen:?}");
    assert!(log.contains("Saved trained model at "), "{log}");
    let model = rack.site.share().join("cifar/saved_models/keras_cifar10_trained_model.h5");
    assert!(fs::metadata(&model).is_ok_and(|model| model.len() > 1_000_000), "{}", model.display());
    // Gradients of five megabytes a step go over the network of `--address`; the other one has the share.
    for machine in [0, 1] {
        let sent = sent_over(&rack, machine, "eth1");
        assert!(
            sent > 5_000_000,
            "machine {machine} sent {sent} bytes over eth1 and {} over eth0",
            sent_over(&rack, machine, "eth0")
        );
    }
    rack.assert_clean(&[]);
}

/// Two machines with two nodes each, at one address.
#[test]
fn a_launcher_reaches_all_nodes_of_all_machines() {
    let Some(machines) = Machines::new(2) else { return };
    let mut site = Site::unstarted(SHORT_LEASE);
    site.start_server("server", &format!("{}:0", machines.server()), "info,corro_server::http=warn");
    let nodes = [("a", 0), ("b", 0), ("c", 1), ("d", 1)];
    let _agents = nodes.map(|(name, machine)| machines.join_as(name, &site, machine, &[], &["--once"]));
    site.prepare(4);
    for launcher in ["mpirun.openmpi", "mpirun.mpich"] {
        if find_program(launcher).is_none() {
            skip::missing_component(format_args!("{launcher} is not on this machine"));
            continue;
        }
        // MPICH's transport takes these machines for one, and its ranks do not connect.
        let meets = launcher == "mpirun.openmpi";
        let program = site.mpi_program(launcher).filter(|_| meets);
        let sums = if program.is_some() { 4 } else { 0 };
        let program = program.unwrap_or_else(|| "true".to_owned());
        let name = launcher.replace('.', "_");
        let settings = json!({"customMpiSettings": {"commandLine": format!("{program} && echo $RANK in $AZ_BATCHAI_JOB_TEMP_DIR")}});
        let variable = json!({"environmentVariables": [{"name": "CORRO_MPIRUN", "value": launcher}]});
        site.submit_with(&name, 4, settings, variable);
        let ended = site.wait_for_end(&name);
        let said = site.log(&name, "stdout.txt");
        assert_eq!(ended["executionState"], "succeeded", "{ended}\n{said}\n{}", site.log(&name, "stderr.txt"));
        let ranks: BTreeSet<&str> =
            said.lines().filter_map(|line| line.split_once(" in ")).map(|(rank, _)| rank).collect();
        let places: BTreeSet<&str> =
            said.lines().filter_map(|line| line.split_once(" in ")).map(|(_, at)| at).collect();
        assert_eq!((ranks, places.len()), (BTreeSet::from(["0", "1", "2", "3"]), 4), "{said}");
        assert_eq!(said.matches(" of 4 knows the sum 10\n").count(), sums, "{said}");
    }
}

/// Listening ports on this machine.
fn listening(rack: &Rack, machine: usize) -> BTreeSet<u16> {
    let pid = rack.agents[machine].child.id();
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    let port = |line: &str| {
        let mut columns = line.split_whitespace();
        let (own, state) = (columns.nth(1)?, columns.nth(1)?);
        u16::from_str_radix(own.rsplit(':').next()?, 16).ok().filter(|_| state == "0A")
    };
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(port).collect()
}

fn sent_over(rack: &Rack, machine: usize, interface: &str) -> u64 {
    let table =
        fs::read_to_string(format!("/proc/{}/net/dev", rack.agents[machine].child.id())).expect("the agent lives");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:")));
    line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).expect("the interface is there")
}
