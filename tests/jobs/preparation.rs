//! Job preparation: runs on every node before any rank, and its failure fails the job.

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::json;

#[test]
fn no_rank_starts_before_every_node_is_prepared() {
    let site = Site::start();
    site.prepare(2);
    // One of the nodes, whichever comes first, is held up at the gate.
    let prepare = format!(
        "if mkdir $AZ_BATCHAI_SHARED_JOB_TEMP/first; then {}; fi; echo prepared; echo a warning >&2; echo export FROM_PREPARATION=yes >> ~/.bashrc; mktemp $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/prepared.XXXX > /dev/null",
        wait_at("go")
    );
    let command = "echo rank sees $(ls $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar | grep -c prepared) $FROM_PREPARATION";
    let settings = json!({"customMpiSettings": {"commandLine": command}});
    site.submit_with("prepared", 2, settings, json!({"jobPreparation": {"commandLine": prepare}}));
    let prepared = || {
        let entries = std::fs::read_dir(site.share().join("cifar")).expect("the share");
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("prepared.")).count()
    };
    wait_for("one node to be prepared", || prepared() == 1);
    assert_eq!(site.job("prepared")["executionState"], "running");
    let nodes: Vec<String> = site.agents().into_iter().map(|(node, _)| node).collect();
    let named =
        |before: &str, after: &str| nodes.iter().map(|node| format!("{before}-{node}{after}")).collect::<Vec<_>>();
    let early = [named("execution", ".log"), named("stderr-job_prep", ".txt"), named("stdout-job_prep", ".txt")];
    assert_eq!(site.file_names("prepared"), early.concat(), "no file of a rank yet");
    site.open_gate("go");

    let job = site.wait_for_end("prepared");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log("prepared", "stdout.txt"), "rank sees 2 yes\nrank sees 2 yes\n");
    let mut all = early.concat();
    all.extend(["stderr.txt".to_owned(), "stdout.txt".to_owned()]);
    all.sort();
    assert_eq!(site.file_names("prepared"), all);
    let mut warnings = 0;
    for node in &nodes {
        assert_eq!(site.log("prepared", &format!("stdout-job_prep-{node}.txt")), "prepared\n");
        let stderr = site.log("prepared", &format!("stderr-job_prep-{node}.txt"));
        assert!(stderr.ends_with("a warning\n"), "{stderr}");
        warnings += stderr.matches("mkdir").count();
    }
    assert_eq!(warnings, 1, "only the second node found the directory made: the shared directory is shared");
}

#[test]
fn a_failed_preparation_fails_the_job_and_nothing_runs() {
    let site = Site::start();
    site.prepare(2);
    let settings = json!({"customMpiSettings": {"commandLine": "touch $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/ran"}});
    // On one node only: the other is ready and must be released.
    let prepare = "echo all is lost >&2; if mkdir $AZ_BATCHAI_SHARED_JOB_TEMP/first; then exit 7; fi";
    site.submit_with("unprepared", 2, settings, json!({"jobPreparation": {"commandLine": prepare}}));
    let job = site.wait_for_end("unprepared");
    assert_eq!(job["executionState"], "failed", "{job}");
    let info = &job["executionInfo"];
    assert_eq!(info["exitCode"], 7, "{info}");
    let error = &info["errors"][0];
    assert_eq!(error["code"], "JobPreparationFailed", "{error}");
    let details = error["details"].to_string();
    let agents = site.agents();
    assert!(agents.iter().any(|(node, _)| details.contains(node.as_str())), "the node is named: {details}");
    assert!(details.contains("all is lost"), "its last words are shown: {details}");
    assert!(!site.share().join("cifar/ran").exists(), "the main command never ran");
    assert!(!site.file_names("unprepared").contains(&"stdout.txt".to_owned()));
    site.wait_for_nodes(2);
    let waited = site.corro(&format!("batchai job wait {IN_WORKSPACE} -e cifar -n unprepared"));
    waited.fails(
        7,
        &["Job state: failed", "Job failed with exit code 7 at ", "Error message: Job preparation task failed"],
    );
}
