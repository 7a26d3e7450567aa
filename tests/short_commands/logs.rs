//! `corro job logs`: the output of jobs whose ranks share files or have their own, while they run and after.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::logs::wait_at;
use crate::harness::{CommandOutput, Site, signal, wait_for};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

#[test]
fn the_output_of_two_ranks_is_printed_followed_and_selected() {
    let site = Site::start();
    site.prepare(2);
    let script = format!(
        "import os, subprocess, sys\nrank = os.environ['RANK']\nfor n in range(1, 4):\n    print(f'out {{n}}', flush=True)\n\
         print(f'err {{rank}}', file=sys.stderr, flush=True)\nsubprocess.run(['sh', '-c', '{}'])\nprint('end', flush=True)\n\
         sys.exit(3 if rank == '1' else 0)\n",
        wait_at("open").replace('\'', "\\'")
    );
    std::fs::write(site.share().join("cifar/two.py"), script).expect("the share can be written");
    let path = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/two.py";
    site.submit_with(
        "two",
        2,
        json!({"horovodSettings": {"pythonScriptFilePath": path}}),
        json!({"prefixOutputWithRank": true}),
    );
    wait_for("the output of both ranks", || {
        let printed = site.corro("job logs two").ok();
        sorted(&printed.stderr) == ["[0] err 0", "[1] err 1"]
    });

    // What there is now, of both ranks and of one.
    let printed = site.corro("job logs two").ok();
    let both = ["[0] out 1", "[0] out 2", "[0] out 3", "[1] out 1", "[1] out 2", "[1] out 3"];
    assert_eq!(sorted(&printed.stdout), both);
    let one = site.corro("job logs two --rank 1").ok();
    assert_eq!((one.stdout.as_str(), one.stderr.as_str()), ("out 1\nout 2\nout 3\n", "err 1\n"));
    let last = site.corro("job logs two --rank 1 --tail 1").ok();
    assert_eq!((last.stdout.as_str(), last.stderr.as_str()), ("out 3\n", "err 1\n"));
    let errors = site.corro("job logs two --stderr --rank 0").ok();
    assert_eq!((errors.stdout.as_str(), errors.stderr.as_str()), ("err 0\n", ""));
    site.corro("job logs two --rank 2").fails(1, &["the job has no rank 2: its ranks are 0 to 1"]);

    // Ctrl-C leaves the job.
    let mut command = site.command("corro");
    let child = command.args(["job", "logs", "two", "-f", "--tail", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("the command starts");
    wait_for("Ctrl-C to be taken", || {
        signal(child.id(), Signal::INT);
        child.try_wait().expect("a state").is_some()
    });
    let interrupted = CommandOutput::from(child.wait_with_output().expect("it ended"));
    assert!(interrupted.code == 130 || interrupted.code == -1, "{}", interrupted.stderr);
    assert_eq!(site.job("two")["executionState"], "running");

    // To the end, from the last lines.
    let mut command = site.command("corro");
    command.args(["job", "logs", "two", "--follow", "--tail", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    // It follows once it has printed what there was.
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut printed = String::new();
    stdout.read_line(&mut printed).expect("a line");
    assert!(printed.ends_with("] out 3\n"), "{printed}");
    site.open_gate("open");
    stdout.read_to_string(&mut printed).expect("text");
    let followed = CommandOutput::from(child.wait_with_output().expect("it ends")).ok();
    assert!(printed.contains("[0] end\n") && printed.contains("[1] end\n"), "{printed}");
    assert!(followed.stderr.contains("The job two failed with exit code 3"), "{}", followed.stderr);
    site.corro("job wait two").fails(3, &["Job failed with exit code 3"]);
}

#[test]
fn ranks_with_files_of_their_own_are_labelled() {
    let site = Site::start();
    site.prepare(2);
    let script = "import os\nprint('rank', os.environ['RANK'], flush=True)\n";
    std::fs::write(site.share().join("cifar/apart.py"), script).expect("the share can be written");
    let path = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/apart.py";
    site.submit_with("apart", 2, json!({"pyTorchSettings": {"pythonScriptFilePath": path}}), json!({}));
    site.wait_for_end("apart");
    assert_eq!(sorted(&site.corro("job logs").ok().stdout), ["[0] rank 0", "[1] rank 1"]);
    assert_eq!(site.corro("job logs apart --rank 1").ok().stdout, "rank 1\n");
    assert_eq!(sorted(&site.corro("job logs apart -f").ok().stdout), ["[0] rank 0", "[1] rank 1"]);

    // Ranks of one file without numbers.
    site.submit_ranks("together", 2, "echo here");
    site.wait_for_end("together");
    assert_eq!(site.corro("job logs together").ok().stdout, "here\nhere\n");
    site.corro("job logs together --rank 0").fails(1, &["cannot be told from that of others", "prefixOutputWithRank"]);

    // A job that waits has none.
    site.submit_custom("held", 2, &wait_at("open"));
    site.submit_custom("waits", 2, "true");
    let waits = site.corro("job logs waits").ok();
    assert!(
        waits.stdout.is_empty() && waits.stderr.contains("The job waits has no output yet. It waits: "),
        "{}",
        waits.stderr
    );
    site.corro("job stop held").ok();
}
