//! Nodes as allocations of a real Slurm: they follow the allocations, through faults of the server. Skipped with a notice where
//! Slurm is not installed or this user is not root.

mod harness;

use std::fs;

use harness::fault_injection::waiting_rank;
use harness::slurm::Slurm;
use harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::Value;

fn site(nodes: usize) -> Option<(Site, Slurm)> {
    let slurm = Slurm::start()?;
    let mut site = Site::unstarted(&["--no-containers", "--tls"]);
    site.start_server_on_slurm(&slurm, "127.0.0.1:0");
    site.prepare(nodes);
    Some((site, slurm))
}

/// The ids of the nodes of the cluster.
fn nodes(site: &Site) -> Vec<String> {
    let list: Value = site.corro(&format!("batchai cluster node list {IN_WORKSPACE} -c nc6cluster")).json();
    let ids = list.as_array().expect("a list").iter().map(|node| node["nodeId"].as_str().expect("an id").to_owned());
    ids.collect()
}

/// A job that fills a machine until it is cancelled.
const BLOCKING: &str = "--mem=100M -c 6 --chdir=/ --output=/dev/null --wrap=sleep${IFS}600";

fn resize(site: &Site, nodes: usize) {
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target {nodes}")).ok();
}

/// The token and the server's key are in no list of processes, no environment and no output of Slurm.
fn assert_nothing_to_read(site: &Site, slurm: &Slurm) {
    let token = fs::read_to_string(site.slurm_nodes()[0].join("join-token")).expect("an agent's token");
    let secret = token.trim().split_once('.').expect("a name and a proof").1.to_owned();
    assert!(!slurm.checked_output("scontrol", "show job").contains(&secret));
    for entry in fs::read_dir("/proc").expect("Linux has it").flatten() {
        for name in ["cmdline", "environ"] {
            let text = String::from_utf8_lossy(&fs::read(entry.path().join(name)).unwrap_or_default()).into_owned();
            assert!(!text.contains(&secret), "{}/{name}", entry.path().display());
        }
    }
}

#[test]
fn a_cluster_is_made_of_allocations_and_a_job_outlives_the_loss_of_one() {
    let Some((site, slurm)) = site(4) else { return };
    let jobs = slurm.jobs();
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.state == "RUNNING" && job.name.starts_with("corro-")), "{jobs:?}");
    let shown = slurm.checked_output("scontrol", &format!("show job {}", jobs[0].id));
    assert!(
        shown.contains("NumCPUs=6") && shown.contains("gres:gpu:1") && shown.contains("MinMemoryNode=56G"),
        "{shown}"
    );
    assert_nothing_to_read(&site, &slurm);

    site.submit_ranks("over-four", 4, "echo rank $RANK of $OMPI_COMM_WORLD_SIZE");
    let ended = site.wait_for_end("over-four");
    let said = site.log("over-four", "stdout.txt");
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{said}\n{}", site.slurm_logs());
    assert!((0..4).all(|rank| said.contains(&format!("rank {rank} of 4"))), "{said}");

    resize(&site, 2);
    site.wait_for_nodes(2);
    wait_for("two allocations to be gone", || slurm.jobs().len() == 2);
    wait_for("their directories to be gone", || site.slurm_nodes().len() == 2);

    // Slurm's operator cancels one, then a machine fails.
    site.submit_ranks("stubborn", 2, &waiting_rank(""));
    let first = site.wait_for_starts(2);
    slurm.checked_output("scancel", &slurm.job_of(&first[0].node).id.to_string());
    let second = site.wait_for_starts(4);
    let lost = site.job("stubborn")["lostAttempts"].to_string();
    assert!(lost.contains("its Slurm job") && lost.contains("CANCELLED"), "{lost}");
    let machine = slurm.checked_output("squeue", &format!("-h -j {} -o %N", slurm.job_of(&second[3].node).id));
    slurm.checked_output("scontrol", &format!("update nodename={machine} state=down reason=test"));
    site.wait_for_starts(6);
    let lost = site.job("stubborn")["lostAttempts"].to_string();
    assert!(lost.contains("NODE_FAIL"), "{lost}");
    site.release_ranks();
    let ended = site.wait_for_end("stubborn");
    assert_eq!(ended["executionState"], "succeeded", "{ended}");

    resize(&site, 0);
    site.wait_for_nodes(0);
    wait_for("all allocations to be gone", || slurm.jobs().is_empty());
    assert_eq!(site.slurm_nodes(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn preemption_by_slurm_costs_no_attempt() {
    let Some((site, slurm)) = site(1) else { return };
    site.submit_ranks("patient", 1, &waiting_rank(""));
    for taken in 1..=3 {
        let node = site.wait_for_starts(taken).pop().expect("it runs").node;
        let machine = slurm.checked_output("squeue", &format!("-h -j {} -o %N", slurm.job_of(&node).id));
        slurm.checked_output("sbatch", &format!("--parsable --partition=urgent --nodelist={machine} {BLOCKING}"));
    }
    site.wait_for_starts(4);
    let job = site.job("patient");
    let lost = job["lostAttempts"].as_array().expect("a list");
    let taken = |lost: &Value| {
        let reason = &lost["reason"];
        let message = reason["message"].as_str().expect("text");
        reason["code"] == "NodePreempted" && message.contains("(Slurm cancelled its allocation)")
    };
    assert!(lost.len() == 3 && lost.iter().all(taken), "{job}");
    let why = site.corro(&format!("job why {IN_WORKSPACE} -e cifar -n patient")).ok().stdout;
    assert!(why.contains("Attempt 3 ended at ") && why.contains("Slurm cancelled its allocation"), "{why}");
    site.release_ranks();
    assert_eq!(site.wait_for_end("patient")["executionState"], "succeeded");
}

#[test]
fn a_job_is_warned_before_the_walltime_of_its_node_ends_and_goes_on_in_another_allocation() {
    let Some(slurm) = Slurm::start() else { return };
    let mut site = Site::unstarted(&["--no-containers", "--slurm-time=1", "--preemption-grace=20"]);
    site.start_server_on_slurm(&slurm, "127.0.0.1:0");
    site.prepare(1);
    let save = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/saved";
    let command = format!(
        "if [ -e {save} ]; then cat {save}; exit 0; fi; \
         trap 'echo step-7 > {save}; exit 0' TERM; while :; do sleep 0.1; done"
    );
    site.submit_ranks("long", 1, &command);
    let first = site.wait_for_state("long", &["running"]);
    let ended = site.wait_for_end("long");
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{}", site.slurm_logs());
    assert_eq!(site.log("long", "stdout.txt"), "step-7\n");
    let segment = "jobOutputDirectoryPathSegment";
    assert_eq!(ended[segment], first[segment]);
    let lost = &ended["lostAttempts"];
    assert_eq!((&lost[0]["reason"]["code"], &lost[1]), (&Value::from("NodePreempted"), &Value::Null), "{ended}");
    assert!(lost.to_string().contains("(the walltime of its Slurm allocation ended)"), "{ended}");
}

#[test]
fn an_allocation_that_waits_outlives_the_server_and_strays_are_cancelled() {
    let Some((mut site, slurm)) = site(3) else { return };
    let blocker = slurm.checked_output("sbatch", &format!("--parsable --job-name=blocker {BLOCKING}"));
    wait_for("the last machine to be taken", || {
        slurm.jobs().iter().any(|job| job.name == "blocker" && job.state == "RUNNING")
    });
    resize(&site, 4);
    wait_for("the reason to be shown", || site.cluster()["errors"].to_string().contains("is pending (Resources)"));
    site.submit_custom("patient", 4, "true");
    let why = site.corro(&format!("job why {IN_WORKSPACE} -e cifar -n patient")).ok().stdout;
    assert!(
        why.contains("1 node is not running yet: its Slurm job ") && why.contains("is pending (Resources)."),
        "{why}"
    );

    let waiting = slurm.jobs().into_iter().find(|job| job.state == "PENDING").expect("one waits");
    let before = nodes(&site);
    site.kill_server();
    // Leftovers of a server that died between submitting and committing, or whose data was restored to an earlier state.
    let (mark, _) = waiting.name.split_once("-tvm-").expect("a mark and a node");
    let stray = format!("--job-name={mark}-tvm-9_9-20200101t000000z-p");
    let stray = slurm.checked_output("sbatch", &format!("--parsable {stray} {BLOCKING}"));
    let address = site.address();
    site.start_server_on_slurm(&slurm, &address);
    wait_for("the stray to be cancelled", || !slurm.jobs().iter().any(|job| job.id.to_string() == stray));
    let kept = slurm.jobs().into_iter().find(|job| job.name == waiting.name).expect("it waits on");
    assert_eq!((kept.id, kept.state), (waiting.id, "PENDING".to_owned()));
    slurm.checked_output("scancel", &blocker);
    let ended = site.wait_for_end("patient");
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{}", site.slurm_logs());
    assert_eq!(nodes(&site).len(), 4);
    assert!(before.iter().all(|node| nodes(&site).contains(node)), "no node was replaced");
    assert!(
        slurm.jobs().iter().all(|job| job.id <= waiting.id || job.id.to_string() == stray),
        "none was asked for twice"
    );

    site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n nc6cluster -y")).ok();
    wait_for("all allocations to be gone", || slurm.jobs().is_empty());
}

#[test]
fn sbatch_errors_are_reported() {
    let Some(slurm) = Slurm::start() else { return };
    let mut site = Site::unstarted(&["--no-containers", "--slurm-option=--mem=1T"]);
    site.start_server_on_slurm(&slurm, "127.0.0.1:0");
    site.prepare(0);
    resize(&site, 1);
    wait_for("the refusal to be shown", || site.cluster()["errors"].to_string().contains("sbatch failed"));
    resize(&site, 0);
    site.wait_for_nodes(0);
    site.corro("server --slurm-partition main").fails(2, &["--slurm-partition requires --provider slurm"]);
}
