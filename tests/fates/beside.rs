//! Inspecting a running job: resource usage of its processes, and commands executed beside them.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::logs::wait_at;
use crate::harness::{CommandOutput, IN_WORKSPACE, Site, wait_for};

fn exec(site: &Site, options: &[&str], command: &[&str]) -> Command {
    let mut exec = site.command("corro");
    exec.args(["job", "exec", "runs", "-e", "cifar", "-p", "not-a-secret"]).args(IN_WORKSPACE.split(' '));
    exec.args(options).arg("--").args(command);
    exec
}

#[test]
fn a_running_job_is_watched_and_joined() {
    let site = Site::start();
    site.prepare(2);
    let begin = "echo begun on rank $RANK; touch $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/begun-$RANK";
    let settings = json!({"customMpiSettings": {"commandLine": format!("{begin}; {}", wait_at("go"))}});
    let more = json!({
        "environmentVariables": [{"name": "PLAIN", "value": "seen"}],
        "secrets": [{"name": "TOKEN", "value": "canary-exec"}],
        "workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
    });
    site.submit_with("runs", 2, settings, more);
    wait_for("both ranks to begin", || {
        [0, 1].iter().all(|rank| site.share().join(format!("cifar/begun-{rank}")).exists())
    });

    // Resource usage, for people and for scripts.
    let top = |more: &str| site.corro(&format!("job top runs {IN_WORKSPACE} -e cifar {more}"));
    let table = top("--once").ok().stdout;
    assert!(table.starts_with("runs, attempt 1: 2 ranks on 2 nodes, "), "{table}");
    let rows = top("-o json").json();
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.iter().map(|row| row["rank"].as_f64()).collect::<Vec<_>>(), [Some(0.0), Some(1.0)], "{rows:?}");
    for row in rows {
        assert!(row["pid"].as_f64() > Some(1.0) && row["memoryBytes"].as_f64() > Some(0.0), "{row}");
        assert!(row["threads"].as_f64() >= Some(1.0) && row["quietForMs"].is_number(), "{row}");
    }
    let second = rows[1]["node"].as_str().expect("an id").to_owned();

    // Commands beside the ranks: directory, variables, exit code, input; secrets only on request.
    let run = |options: &[&str], command: &[&str]| {
        CommandOutput::from(exec(&site, options, command).output().expect("it runs"))
    };
    let seen = run(
        &[],
        &[
            "sh",
            "-c",
            "echo \"$PLAIN/$TOKEN/$RANK\"; [ . -ef $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar ]; exit $((7+$?))",
        ],
    );
    assert_eq!((seen.stdout.as_str(), seen.code), ("seen//\n", 7), "{}", seen.stderr);
    assert_eq!(run(&["--with-secrets"], &["sh", "-c", "echo $TOKEN"]).ok().stdout, "canary-exec\n");
    let rank = run(&["--rank", "1"], &["sh", "-c", "echo $RANK/$TOKEN; echo $AZ_BATCHAI_JOB_TEMP"]).ok().stdout;
    assert!(rank.starts_with("1/\n") && rank.contains(&second), "{rank}");
    assert_eq!(
        run(&["--node", &second], &["echo", "a b", "$HOME"]).ok().stdout,
        "a b $HOME\n",
        "words stay as they are"
    );
    let mut cat = exec(&site, &[], &["cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    cat.stdin.take().expect("it is piped").write_all(b"from here\n").expect("taken");
    assert_eq!(cat.wait_with_output().expect("it ends").stdout, b"from here\n");
    run(&["--rank", "9"], &["true"]).fails(1, &["no rank 9", "corro job top"]);
    run(&["--node", "tvm-1_1-20180718t174802z-p"], &["true"]).fails(1, &["Cannot find a node"]);

    // A command beside the job ends with it, with the reason.
    let long = exec(&site, &[], &["sh", "-c", "echo here; exec sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut long = long.expect("it runs");
    let mut first = [0; 5];
    std::io::Read::read_exact(long.stdout.as_mut().expect("it is piped"), &mut first).expect("it says so");
    site.open_gate("go");
    assert_eq!(site.wait_for_end("runs")["executionState"], "succeeded");
    let left = CommandOutput::from(long.wait_with_output().expect("it ends"));
    assert!(left.code == 143 && left.stderr.contains("the job has ended here"), "{left:?}");
    wait_for("no process of the job", || site.node_processes().is_empty());
    for ended in [top("--once"), run(&[], &["true"])] {
        ended.fails(1, &["The job runs has succeeded: it has no processes now"]);
    }
    let up_log = site.up_log();
    assert!(!up_log.contains("canary-exec"), "{up_log}");
    assert_eq!(site.job("runs")["secrets"][0]["value"], Value::Null);
}
