//! Commands inside the containers of a running job: exec with a terminal and without, resource usage of its processes, and
//! commands that one of its nodes starts on another.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use corro_test_support::skip;
use serde_json::json;

use crate::harness::fault_injection::waiting_rank;
use crate::harness::host::find_program;
use crate::harness::{CommandOutput, IN_WORKSPACE, Site};
use crate::{IMAGE, WITHOUT_PATH};

/// The command `corro job exec` for the job `reached`.
fn exec(site: &Site, command: &[&str]) -> Command {
    let mut exec = site.command("corro");
    exec.args(["job", "exec", "reached", "-e", "cifar", "-p", "not-a-secret"]).args(IN_WORKSPACE.split(' '));
    exec.arg("--").args(command);
    exec
}

pub fn commands_run_beside_a_job_in_its_container(site: &Site) {
    let more = json!({"environmentVariables": [{"name": "PLAIN", "value": "seen"}]});
    let settings = json!({"customMpiSettings": {"commandLine": waiting_rank("echo inside > /mark;")}});
    crate::submit(site, "reached", 1, "nc6cluster", settings, more);
    site.wait_for_starts(1);

    let rows = site.corro(&format!("job top reached {IN_WORKSPACE} -e cifar -o json")).json();
    let row = &rows[0];
    assert!(row["rank"] == 0.0 && row["memoryBytes"].as_f64() > Some(0.0), "{rows}");
    assert!(row["threads"].as_f64() >= Some(1.0) && row["pid"].as_f64() > Some(1.0), "{rows}");

    let beside = CommandOutput::from(
        exec(site, &["sh", "-c", "cat /mark; echo $PLAIN $IN_IMAGE; exit 4"]).output().expect("it runs"),
    );
    assert_eq!((beside.stdout.as_str(), beside.code), ("inside\nseen yes\n", 4), "{}", beside.stderr);
    let mut cat = exec(site, &["cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    cat.stdin.take().expect("it is piped").write_all(b"from here\n").expect("taken");
    assert_eq!(cat.wait_with_output().expect("it ends").stdout, b"from here\n");

    match find_program("script") {
        Some(_) => with_a_terminal(site),
        None => skip::missing_component("no 'script' (bsdutils), so there is no terminal"),
    }
    crate::forget_starts(site);
    assert_eq!(site.wait_for_end("reached")["executionState"], "succeeded");
}

/// `script` gives a command a terminal, which it passes on to the container.
fn with_a_terminal(site: &Site) {
    let sized = "shopt -s checkwinsize; while ls >/dev/null; [ \"$COLUMNS $LINES\" != \"80 24\" ] && [ $((n += 1)) -lt 200 ]; do sleep 0.05; done";
    let line = format!(
        "cat /mark; [ -t 0 ] && [ -t 1 ] && echo terminal $TERM; {sized}; echo size $COLUMNS $LINES; echo ready; \
         read -r line; echo \"got $line\"; trap 'echo interrupted; exit 6' INT; echo waits; while :; do sleep 0.05; done"
    );
    let inner = exec(site, &["bash", "-c", &line]);
    let quote = |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"));
    let words: Vec<String> = std::iter::once(inner.get_program()).chain(inner.get_args()).map(quote).collect();
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]).env("TERM", "vt100");
    script.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let (mut keys, mut screen) = (script.stdin.take().expect("piped"), script.stdout.take().expect("piped"));
    let mut shown = String::new();
    let mut until = |words: &str, screen: &mut dyn Read| {
        let mut byte = [0];
        while !shown.contains(words) {
            assert!(screen.read(&mut byte).is_ok_and(|n| n == 1), "{words} in {shown}");
            shown.push(char::from(byte[0]));
        }
        shown.clone()
    };
    let seen = until("ready", &mut screen);
    assert!(seen.contains("inside") && seen.contains("terminal vt100") && seen.contains("size 80 24"), "{seen}");
    keys.write_all(b"typed\n").expect("taken");
    until("got typed", &mut screen);
    until("waits", &mut screen);
    // Ctrl-C is handled by the inner terminal.
    keys.write_all(b"\x03").expect("taken");
    until("interrupted", &mut screen);
    assert_eq!(script.wait().expect("it ends").code(), Some(6));
}

/// The image has none of the libraries that our ssh shim needs beside the C library.
pub fn nodes_of_a_job_reach_each_other(site: &Site) {
    reach_each_other(site, "reach", IMAGE);
    reach_each_other(site, "bare", WITHOUT_PATH);
}

fn reach_each_other(site: &Site, name: &str, image: &str) {
    let command = "for host in ${AZ_BATCH_HOST_LIST//,/ }; do echo words | ssh -x $host 'cat; echo $IN_IMAGE in $AZ_BATCHAI_JOB_TEMP'; done; \
        ssh ${AZ_BATCH_HOST_LIST#*,} exit 9; echo code $?; ssh 192.0.2.1 true; echo code $?";
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    crate::submit(site, name, 2, "nc6cluster", settings, json!({"containerSettings": crate::in_image(image)}));
    let job = site.wait_for_end(name);
    let (stdout, stderr) = (site.job_file(name, "stdout.txt"), site.job_file(name, "stderr.txt"));
    assert_eq!(job["executionState"], "succeeded", "{job}\n{stdout}\n{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let [words, first, more, second, rest @ ..] = &lines[..] else { panic!("{stdout}\n{stderr}") };
    assert_eq!((*words, *more), ("words", "words"));
    assert!(first.starts_with("yes in /") && second.starts_with("yes in /") && first != second, "{stdout}");
    assert_eq!(rest, ["code 9", "code 255"], "{stderr}");
    assert!(stderr.contains("'192.0.2.1' is not a node of this job"), "{stderr}");
}
