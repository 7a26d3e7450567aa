//! Gangs on a host with several nodes at one address: launchers reach each node, and ranks share memory.

use corro_test_support::skip;
use serde_json::json;

use crate::harness::Site;
use crate::harness::host::find_program;
use crate::{JoinedHost, TWO_NODES, server, token};

/// Both nodes are reached at the same address, as on a remote machine.
fn two_nodes_at_one_address() -> (Site, JoinedHost) {
    let site = server();
    let word = token(&site, "")["token"].as_str().expect("a token").to_owned();
    let words = format!("{} --token {word} --name gpu-1 --address 127.0.0.1 {TWO_NODES}", site.url);
    let host = JoinedHost::start(&site, "h", &words);
    site.prepare(2);
    (site, host)
}

#[test]
fn mpirun_reaches_every_node_of_a_host() {
    let (site, host) = two_nodes_at_one_address();
    let families = [("mpirun.openmpi", "--allow-run-as-root"), ("mpirun.mpich", "-genvnone")];
    for (launcher, option) in families {
        if find_program(launcher).is_none() {
            skip::missing_component(format_args!("{launcher} is not on this machine"));
            continue;
        }
        let says = "echo \"$RANK in $AZ_BATCHAI_JOB_TEMP_DIR with $CORRO_PORTS\"";
        let variable = json!({"environmentVariables": [{"name": "CORRO_MPIRUN", "value": launcher}]});
        let ours = launcher.replace('.', "_");
        let settings = json!({"customMpiSettings": {"commandLine": says, "processCount": 4}});
        site.submit_with(&ours, 2, settings, variable);
        // A launcher of the job's own uses the host file.
        let own = format!("{ours}-own");
        let file = "$AZ_BATCHAI_MPI_HOST_FILE";
        let rank = "${OMPI_COMM_WORLD_RANK-$PMI_RANK}";
        let says = says.replace("$RANK", rank);
        let command = match launcher {
            "mpirun.openmpi" => format!("{launcher} {option} -np 2 --hostfile {file} sh -c '{says}'"),
            // It needs the address at which its daemons reach it, and a directory that exists on every node.
            _ => {
                let way_back = "-wdir / -localhost ${AZ_BATCH_MASTER_NODE%:*}";
                format!("{launcher} {option} {way_back} -np 2 -hosts $AZ_BATCH_HOST_LIST sh -c '{says}'")
            }
        };
        site.submit_custom(&own, 2, &command);
        for (job, ranks) in [(&ours, 4), (&own, 2)] {
            let ended = site.wait_for_end(job);
            let said = site.log(job, "stdout.txt");
            let errors = site.log(job, "stderr.txt");
            assert_eq!(ended["executionState"], "succeeded", "{ended}\n{said}\n{errors}\n{}", host.log());
            let mut lines: Vec<&str> = said.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines.len(), ranks, "{said}");
            for (rank, line) in lines.iter().enumerate() {
                let (node, _) = &host.agents()[rank * 2 / ranks];
                assert!(line.starts_with(&format!("{rank} in ")) && line.contains(node.as_str()), "{said}");
                assert!(line.ends_with(" with 21000-29999"), "{said}");
            }
        }
    }
}

#[test]
fn ranks_of_two_nodes_of_a_host_share_its_memory() {
    let (site, host) = two_nodes_at_one_address();
    let training = json!({"epochs": 1, "batch": 8, "synthetic": {"train": 32, "test": 16}});
    std::fs::write(site.share().join("cifar/settings.json"), training.to_string()).expect("a file of the share");
    let corro = site.command("corro").get_program().to_string_lossy().into_owned();
    let horovod = json!({"horovodSettings": {
        "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/settings.json",
        "pythonInterpreterPath": format!("{corro} train"),
        "commandLineArgs": "--dir=$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
        "processCount": 2
    }});
    // Fails if ranks do not share memory.
    let variable = json!({"environmentVariables": [{"name": "CORRO_TRANSPORT", "value": "shm"}]});
    site.submit_with("train", 2, horovod, variable);
    let ended = site.wait_for_end("train");
    let said = site.log("train", "stdout.txt");
    assert_eq!(
        ended["executionState"],
        "succeeded",
        "{ended}\n{said}\n{}\n{}",
        site.log("train", "stderr.txt"),
        host.log()
    );
    assert!(said.contains("Saved trained model at "), "{said}");
}
