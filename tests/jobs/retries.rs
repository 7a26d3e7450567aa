//! Jobs that are run again after their program failed (`constraints.maxRetryCount`).

use crate::harness::logs::wait_at;
use crate::harness::{IN_WORKSPACE, Site};
use serde_json::{Value, json};

/// Runs the command with this retry count.
fn submit(site: &Site, name: &str, command: &str, retries: u32) {
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    let constraints = json!({"maxWallClockTime": "PT10M", "maxRetryCount": retries});
    let output = json!([{"id": "OUT", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", "pathSuffix": "out"}]);
    site.submit_with(name, 1, settings, json!({"constraints": constraints, "outputDirectories": output}));
}

fn exit_codes(job: &Value) -> Vec<i64> {
    let attempts = job["lostAttempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    attempts.iter().map(|attempt| attempt["exitCode"].as_i64().unwrap_or(-1)).collect()
}

/// Each attempt leaves a mark in the output directory; the second one finds that of the first. The server is killed while the
/// first runs, and again while the second does.
#[test]
fn the_second_attempt_succeeds_with_the_output_of_the_first() {
    let mut site = Site::start();
    site.prepare(1);
    let command = format!(
        "cd $AZ_BATCHAI_OUTPUT_OUT; echo $((`cat n 2>/dev/null || echo 0` + 1)) > n; n=`cat n`; echo attempt $n; \
         {}; [ $n = 2 ] || {{ echo boom >&2; exit 7; }}",
        wait_at("go-$n")
    );
    submit(&site, "retried", &command, 2);
    site.wait_for_state("retried", &["running"]);
    let logs = site.log_dir("retried");
    site.kill_server();
    site.open_gate("go-1");
    site.up();
    crate::harness::wait_for("the second attempt", || site.log("retried", "stdout.txt").contains("attempt 2"));
    site.kill_server();
    site.up();
    site.open_gate("go-2");
    let job = site.wait_for_end("retried");
    assert_eq!((&job["executionState"], &job["executionInfo"]["exitCode"]), (&json!("succeeded"), &json!(0)), "{job}");
    assert_eq!(exit_codes(&job), [7], "{job}");
    let reason = &job["lostAttempts"][0]["reason"];
    assert_eq!(reason["code"], "JobFailed", "{job}");
    assert!(reason["details"].to_string().contains(r#""StdErr","value":"boom""#), "{reason}");
    assert_eq!(site.log_dir("retried"), logs, "the same directory");
    assert_eq!(site.log("retried", "stdout.txt"), "attempt 1\nattempt 2\n");
    let execution_log = site.log("retried", "execution.log");
    assert!(execution_log.contains("Attempt 1 failed at "), "{execution_log}");
    let why = site.corro(&format!("job why retried {IN_WORKSPACE} -e cifar")).ok().stdout;
    assert!(why.contains("Attempt 1 failed at ") && why.contains("exit code 7"), "{why}");
}

#[test]
fn a_job_fails_after_its_last_retry_and_not_when_it_is_terminated() {
    let site = Site::start();
    site.prepare(1);
    submit(&site, "fails", "echo attempt; exit 3", 2);
    let job = site.wait_for_end("fails");
    assert_eq!((&job["executionState"], &job["executionInfo"]["exitCode"]), (&json!("failed"), &json!(3)), "{job}");
    assert_eq!(exit_codes(&job), [3, 3], "{job}");
    assert_eq!(site.log("fails", "stdout.txt"), "attempt\n".repeat(3));
    let why = site.corro(&format!("job why fails {IN_WORKSPACE} -e cifar")).ok().stdout;
    assert!(why.contains("It failed in 3 attempts: constraints.maxRetryCount is 2."), "{why}");

    submit(&site, "stopped", "trap 'exit 1' TERM; echo begun; while :; do sleep 0.1; done", 5);
    crate::harness::wait_for("the job to begin", || site.log("stopped", "stdout.txt") == "begun\n");
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n stopped --yes")).ok();
    let job = site.wait_for_end("stopped");
    assert_eq!(job["executionInfo"]["errors"][0]["code"], "JobTerminated", "{job}");
    assert_eq!(exit_codes(&job), [] as [i64; 0], "{job}");
}
