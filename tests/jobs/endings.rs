//! Job termination: by itself, by a failing rank, by a user; and the reported cause.

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site, is_alive, wait_for};
use serde_json::{Value, json};

#[test]
fn a_failing_rank_fails_the_job_and_is_named() {
    let site = Site::start();
    site.prepare(2);
    let command = "echo out $RANK; if [ $RANK = 1 ]; then echo first word >&2; echo last word >&2; exit 3; fi; echo $$ > $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/pid; exec sleep 600";
    site.submit_ranks("fails", 2, command);
    let job = site.wait_for_end("fails");
    let info = &job["executionInfo"];
    assert_eq!((&job["executionState"], &info["exitCode"]), (&"failed".into(), &3.into()), "{job}");
    let error = &info["errors"][0];
    assert_eq!(error["code"], "JobFailed", "{error}");
    let detail = |name: &str| {
        let details = error["details"].as_array().expect("details");
        let found = details.iter().find(|detail| detail["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {error}"))["value"].as_str().expect("text").to_owned()
    };
    assert_eq!((detail("Rank").as_str(), detail("ExitCode").as_str()), ("1", "3"));
    assert_eq!(detail("StdErr"), "first word\nlast word");
    let node = detail("Node");
    assert!(site.agents().iter().any(|(id, _)| *id == node), "{node}");
    assert_eq!(site.log("fails", "stderr.txt"), "first word\nlast word\n");
    wait_for("no process of the job", || site.node_processes().is_empty());

    // `job wait` and `job file stream` report it too.
    let waited = site.corro(&format!("batchai job wait {IN_WORKSPACE} -e cifar -n fails"));
    let waited = waited.fails(
        3,
        &[
            "Job submitted at ",
            "Job started execution at ",
            "Job state: failed",
            "The job \"fails\" in resource group \"batchai.horovod\" failed.",
            "Job failed with exit code 3 at ",
            "; execution took 0:00:",
            "Error message: Job failed with non-zero exit code",
            "Details:",
            "    Rank: 1",
            "    StdErr: first word",
        ],
    );
    assert_eq!(waited.stdout, "");
    let streamed = site.stream("fails", "stderr.txt").ok();
    assert_eq!(streamed.stdout, "first word\nlast word\n");
    assert!(streamed.stderr.contains("failed with exit code 3"), "{}", streamed.stderr);

    // A signal becomes 128 + n, and is reported as a signal.
    site.submit_ranks("killed", 2, "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 600");
    let job = site.wait_for_end("killed");
    assert_eq!(job["executionInfo"]["exitCode"], 137, "{job}");
    let details = job["executionInfo"]["errors"][0]["details"].to_string();
    assert!(details.contains(r#""Signal","value":"9""#) && details.contains(r#""Rank","value":"0""#), "{details}");

    a_success_is_waited_for(&site);
}

fn a_success_is_waited_for(site: &Site) {
    site.submit_custom("succeeds", 1, &format!("{}; exit 0", wait_at("go")));
    site.wait_for_state("succeeds", &["running"]);
    let mut wait = site.command("corro");
    wait.args(format!("batchai job wait {IN_WORKSPACE} -e cifar -n succeeds --interval 1").split_whitespace());
    let wait = wait.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    site.open_gate("go");
    let output = wait.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!((stderr.matches("Job submitted at ").count(), stderr.matches("Job state: succeeded").count()), (1, 1));
    assert!(stderr.contains("Job completed at ") && stderr.contains("; execution took 0:00:"), "{stderr}");
    let missing = site.corro(&format!("batchai job wait {IN_WORKSPACE} -e cifar -n missing"));
    assert_ne!(missing.code, 0);
    assert!(missing.stderr.contains("missing"), "{}", missing.stderr);
}

/// Ranks that ignore SIGTERM, with children, ended by terminate and by delete.
#[test]
fn terminate_and_delete_leave_no_process() {
    let site = Site::start();
    site.prepare(2);
    let command = "trap '' TERM INT; sleep 600 & echo $$ $! > $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/pids-$JOB-$RANK; echo begun; while :; do wait; done";
    let start = |name: &str| {
        site.submit_ranks(name, 2, &format!("JOB={name}; {command}"));
        let pids = || -> Vec<u32> {
            let text = [0, 1].map(|rank| site.on_share(&format!("pids-{name}-{rank}"))).join(" ");
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        wait_for("both ranks to begin", || pids().len() == 4);
        assert!(pids().iter().all(|pid| is_alive(*pid)));
        pids()
    };

    let pids = start("terminated");
    let ended = site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n terminated --yes")).ok();
    assert_eq!(ended.stdout, "");
    let job = site.job("terminated");
    assert_eq!(job["executionState"], "failed", "it has ended when the command returns: {job}");
    let info = &job["executionInfo"];
    assert_eq!(info["errors"][0]["code"], "JobTerminated", "{info}");
    assert_eq!(info["exitCode"], Value::Null, "{info}");
    assert!(info["endTime"].is_string(), "{info}");
    assert_eq!(alive(&pids), [] as [u32; 0], "no process outlives its job");
    let again = site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n terminated --yes"));
    assert_eq!(again.ok().stdout, "", "terminating what has ended changes nothing");
    site.corro(&format!("batchai job wait {IN_WORKSPACE} -e cifar -n terminated")).fails(255, &["Job failed at "]);
    site.wait_for_nodes(2);

    let pids = start("deleted");
    let logs = site.log_dir("deleted");
    let deleted = site.corro(&format!("batchai job delete {IN_WORKSPACE} -e cifar -n deleted --yes")).ok();
    assert_eq!(deleted.stdout, "");
    assert_eq!(alive(&pids), [] as [u32; 0], "no process outlives its job");
    site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n deleted")).fails(3, &["deleted"]);
    site.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j deleted")).fails(1, &["deleted"]);
    assert_eq!(std::fs::read_to_string(logs.join("stdout.txt")).expect("files stay"), "begun\nbegun\n");
    site.wait_for_nodes(2);

    // A new job of the same name is another job: its files are separate.
    site.submit_custom("deleted", 1, "echo new");
    site.wait_for_end("deleted");
    assert_ne!(site.log_dir("deleted"), logs);
    assert_eq!(site.log("deleted", "stdout.txt"), "new\n");
    let taken = site.submit(
        "deleted",
        &site.job_json(1, serde_json::json!({"customToolkitSettings": {"commandLine": "echo"}}), serde_json::json!({})),
    );
    taken.fails(1, &["A job with given name, experiment, workspace and resource group already exists."]);
}

fn alive(pids: &[u32]) -> Vec<u32> {
    pids.iter().copied().filter(|pid| is_alive(*pid)).collect()
}

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank_that_fails() {
    crate::harness::collective::run_failing_rank();
}

/// On two nodes, whose reports arrive in any order.
#[test]
fn the_rank_that_failed_is_blamed_and_not_those_that_failed_because_of_it() {
    let site = Site::start();
    site.prepare(2);
    let program = std::env::current_exe().expect("this program");
    let program = format!("{} --exact endings::a_rank_that_fails --ignored --nocapture", program.display());
    for (nth, (culprit, failure, end)) in [
        (0, "raise", ("ExitCode", "5")),
        (1, "raise", ("ExitCode", "5")),
        (2, "raise", ("ExitCode", "5")),
        (3, "raise", ("ExitCode", "5")),
        (0, "kill", ("Signal", "9")),
        (3, "kill", ("Signal", "9")),
        (1, "exit", ("ExitCode", "6")),
        (2, "early", ("ExitCode", "4")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("culprit-{nth}");
        let command = format!("CULPRIT={culprit} FAILURE={failure} HOROVOD_GLOO_TIMEOUT_SECONDS=600 exec {program}");
        let settings = json!({"customMpiSettings": {"commandLine": command, "processCount": 4}});
        site.submit(&name, &site.job_json(2, settings, json!({}))).ok();
        let job = site.wait_for_end(&name);
        let details = job["executionInfo"]["errors"][0]["details"].as_array().expect("details").clone();
        let detail =
            |name: &str| details.iter().find(|detail| detail["name"] == name).map(|detail| detail["value"].clone());
        assert_eq!(detail("Rank"), Some(json!(culprit.to_string())), "{culprit} {failure}: {job}");
        assert_eq!(detail(end.0), Some(json!(end.1)), "{culprit} {failure}: {job}");
    }
}
