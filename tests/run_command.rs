//! `corro run`: a gang of processes on this machine without a server. Real processes.

mod harness;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::{CommandOutput, is_alive, signal, wait_for};
use rustix::process::Signal;

fn corro(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
    command.arg("run").args(args).current_dir(dir).stdin(Stdio::null()).env("SEEN_BY_RANKS", "yes");
    command
}

fn run(dir: &Path, args: &[&str]) -> CommandOutput {
    let output = corro(dir, args).output().expect("it runs");
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

#[test]
fn every_line_has_its_rank() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = "echo hello $HOROVOD_RANK of $HOROVOD_SIZE; echo oops $HOROVOD_RANK >&2";
    let ended = run(dir.path(), &["-np", "4", "sh", "-c", script]).ok();
    let lines = [0, 1, 2, 3].map(|rank| format!("[{rank}]<stdout>:hello {rank} of 4"));
    assert_eq!(sorted(&ended.stdout), lines);
    let lines = [0, 1, 2, 3].map(|rank| format!("[{rank}]<stderr>:oops {rank}"));
    assert_eq!(sorted(&ended.stderr), lines);
    let ended = run(dir.path(), &["--no-prefix", "--output-filename", "logs", "-n", "2", "sh", "-c", script]).ok();
    assert_eq!(sorted(&ended.stdout), ["hello 0 of 2", "hello 1 of 2"]);
    for rank in [0, 1] {
        let read = |name: &str| std::fs::read_to_string(dir.path().join(format!("logs/rank.{rank}/{name}")));
        assert_eq!(read("stdout").expect("kept"), format!("hello {rank} of 2\n"));
        assert_eq!(read("stderr").expect("kept"), format!("oops {rank}\n"));
    }
    // Lines are written in pieces by all ranks at once, and none is torn.
    let script = "for i in $(seq 200); do printf 'rank %s ' $RANK; printf 'step %s\\n' $i; done";
    let ended = run(dir.path(), &["-np", "4", "bash", "-c", script]).ok();
    for rank in 0..4 {
        let mine = |line: &&str| line.starts_with(&format!("[{rank}]"));
        let seen: Vec<&str> = ended.stdout.lines().filter(mine).collect();
        let expected: Vec<String> = (1..=200).map(|i| format!("[{rank}]<stdout>:rank {rank} step {i}")).collect();
        assert_eq!(seen, expected);
    }
    assert_eq!(ended.stdout.lines().count(), 800);
}

#[test]
fn ranks_know_their_place_and_the_users_variables() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = "env > env-$RANK; pwd > pwd-$RANK";
    run(dir.path(), &["-np", "3", "-H", "localhost:2,127.0.0.1:2", "sh", "-c", script]).ok();
    let mut ports = Vec::new();
    for rank in 0..3 {
        let env = std::fs::read_to_string(dir.path().join(format!("env-{rank}"))).expect("every rank ran");
        let get = |name: &str| {
            let found = env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            found.unwrap_or_else(|| panic!("{name} of rank {rank}")).to_owned()
        };
        let (host, local_rank, local_size) = if rank < 2 { ("localhost", rank, 2) } else { ("127.0.0.1", 0, 1) };
        for (name, value) in [
            ("HOROVOD_RANK", rank.to_string()),
            ("HOROVOD_SIZE", "3".into()),
            ("HOROVOD_LOCAL_RANK", local_rank.to_string()),
            ("HOROVOD_LOCAL_SIZE", local_size.to_string()),
            ("HOROVOD_CROSS_RANK", if rank == 2 { "1".into() } else { "0".into() }),
            ("HOROVOD_CROSS_SIZE", if local_rank == 0 { "2".into() } else { "1".into() }),
            ("HOROVOD_HOSTNAME", host.into()),
            ("HOROVOD_CONTROLLER", "gloo".into()),
            ("HOROVOD_CPU_OPERATIONS", "gloo".into()),
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "3".into()),
            ("LOCAL_RANK", local_rank.to_string()),
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "3".into()),
            ("SEEN_BY_RANKS", "yes".into()),
        ] {
            assert_eq!(get(name), value, "{name} of rank {rank}");
        }
        assert!(!get("MASTER_ADDR").is_empty() && !get("MASTER_PORT").is_empty());
        ports.push((get("HOROVOD_GLOO_RENDEZVOUS_ADDR"), get("HOROVOD_GLOO_RENDEZVOUS_PORT")));
        let pwd = std::fs::read_to_string(dir.path().join(format!("pwd-{rank}"))).expect("every rank ran");
        assert_eq!(Path::new(pwd.trim_end()), dir.path().canonicalize().expect("it is there"));
    }
    assert!(ports.iter().all(|port| *port == ports[0]), "one meeting point: {ports:?}");
}

#[test]
fn the_first_failure_ends_the_rest() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The others ignore SIGTERM and have children.
    let script = "if [ $RANK = 1 ]; then until [ -s pids-0 ] && [ -s pids-2 ]; do sleep 0.02; done; echo broken >&2; exit 3; fi; trap '' TERM; sleep 600 & echo $$ $! > pids-$RANK; while :; do wait; done";
    let ended = run(dir.path(), &["-np", "3", "bash", "-c", script]);
    let ended = ended
        .fails(3, &["rank 1 of 3 on localhost ended with exit code 3", "the other ranks were stopped", "    broken"]);
    assert!(ended.stderr.contains("[1]<stderr>:broken"), "{}", ended.stderr);
    assert_eq!(alive(dir.path()), [] as [u32; 0]);
    let killed = run(dir.path(), &["-np", "2", "sh", "-c", "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 600"]);
    killed.fails(137, &["rank 0 of 2 on localhost ended with signal 9 (SIGKILL)"]);
    assert_eq!(run(dir.path(), &["-np", "2", "true"]).ok().stderr, "");
}

#[test]
fn invalid_arguments_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let refused = |args: &[&str], code: i32, says: &[&str]| {
        let ended = run(dir.path(), args).fails(code, says);
        assert_eq!(ended.stdout, "");
    };
    let format = "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2.";
    refused(&["-np", "2", "-H", "localhost", "true"], 1, &[format, "`localhost`"]);
    refused(&["-np", "2", "-H", "localhost:two", "true"], 1, &[format, "`localhost:two`"]);
    refused(&["-np", "2", "-H", "worker-7.example:2", "true"], 1, &["worker-7.example", "this machine only"]);
    refused(&["-np", "5", "-H", "localhost:2", "true"], 1, &["more processes (5)", "available slots (2)"]);
    for count in ["0", "four", "-1"] {
        refused(&["-np", count, "true"], 2, &["--num-proc", "at least 1"]);
    }
    refused(&["true"], 1, &["the number of ranks is missing"]);
    refused(&["-np", "2"], 2, &["COMMAND"]);
    refused(&["-np", "2", "--hostfile", "missing", "true"], 1, &["cannot read the host file missing"]);
    std::fs::write(dir.path().join("hosts"), "localhost 2\n").expect("written");
    refused(&["-np", "2", "--hostfile", "hosts", "true"], 1, &["line 1 of the host file"]);
    let ended = run(dir.path(), &["-np", "2", "surely-no-such-command"]);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("surely-no-such-command"), "{}", ended.stderr);
}

/// Ctrl-C, SIGTERM, and the death of `corro` itself: in every case its ranks and their children end.
#[test]
fn nothing_is_left_behind() {
    for (sent, code) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut child = start_stubborn(dir.path());
        signal(child.id(), sent);
        assert_eq!(child.wait().expect("it ends").code(), code, "{sent:?}");
        wait_for("ranks and their children to end", || alive(dir.path()).is_empty());
    }
}

/// Two ranks with a child each, all ignoring SIGTERM.
fn start_stubborn(dir: &Path) -> Child {
    let script = "trap '' TERM INT; sleep 600 & echo $$ $! > pids-$RANK; while :; do wait; done";
    let mut command = corro(dir, &["-np", "2", "bash", "-c", script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("both ranks to begin", || alive(dir).len() == 4);
    child
}

/// Recorded processes that still run.
fn alive(dir: &Path) -> Vec<u32> {
    let texts = (0..4).map(|rank| std::fs::read_to_string(dir.join(format!("pids-{rank}"))).unwrap_or_default());
    let pids: Vec<u32> =
        texts.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    pids.into_iter().filter(|pid| is_alive(*pid)).collect()
}

/// Old scripts: a requested compatibility layer comes first and still runs the user's own start-up file; one that would have
/// helped is named.
#[test]
fn old_scripts_are_helped() {
    let Some(python) = harness::host::python() else { return };
    let python = python.to_str().expect("UTF-8");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let show = "import sys; print('corro_keras_2018' in sys.modules, sys.path.count(sys.argv[1]))";
    std::fs::create_dir(dir.path().join("own")).expect("a directory");
    std::fs::write(dir.path().join("own/sitecustomize.py"), "print('mine too')\n").expect("written");
    let own = dir.path().join("own");
    let own = own.to_str().expect("UTF-8");
    let with = |args: &[&str]| {
        let mut command = corro(dir.path(), args);
        CommandOutput::from(command.env("PYTHONPATH", own).env("TMPDIR", dir.path()).output().expect("it runs"))
    };
    let ended = with(&["-np", "2", "--no-prefix", "--compat", "keras-2018", python, "-c", show, own]).ok();
    assert_eq!(sorted(&ended.stdout), ["True 1", "True 1", "mine too", "mine too"]);
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").flatten().collect();
    assert_eq!(left.len(), 1, "the layer goes with the run: {left:?}");
    let ended = with(&["-np", "1", "--no-prefix", python, "-c", show, own]).ok();
    assert_eq!(sorted(&ended.stdout), ["False 1", "mine too"]);

    let known = "unknown compatibility layer 'keras-1998': use keras-2018";
    run(dir.path(), &["-np", "1", "--compat", "keras-1998", "true"]).fails(2, &[known]);
    let old = "class tf: pass\nraise AttributeError(\"module 'tensorflow' has no attribute 'ConfigProto'\")";
    let hint = "\nhint: tf.ConfigProto is gone: use tf.config.set_visible_devices. To run the script as it is: corro run --compat keras-2018";
    run(dir.path(), &["-np", "2", python, "-c", old]).fails(1, &[hint]);
    let ended = run(dir.path(), &["-np", "1", "--compat", "keras-2018", python, "-c", old]);
    assert!(ended.code == 1 && !ended.stderr.contains("hint:"), "{}", ended.stderr);
}

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank_that_fails() {
    harness::collective::run_failing_rank();
}

/// Four ranks, one of them failing.
fn run_with_a_culprit(dir: &Path, culprit: usize, failure: &str) -> CommandOutput {
    let program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("a path that is text");
    let mut command = corro(dir, &["-np", "4", program, "--exact", "a_rank_that_fails", "--ignored", "--nocapture"]);
    command.env("CULPRIT", culprit.to_string()).env("FAILURE", failure).env("HOROVOD_GLOO_TIMEOUT_SECONDS", "600");
    let output = command.output().expect("it runs");
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// All ranks fail within milliseconds of each other, in any order.
#[test]
fn the_rank_that_failed_is_named_and_not_those_that_failed_because_of_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for culprit in 0..4 {
        for (failure, code, says) in [
            ("raise", 5, "exit code 5"),
            ("exit", 6, "exit code 6"),
            ("kill", 137, "signal 9 (SIGKILL)"),
            ("early", 4, "exit code 4"),
        ] {
            let ended = run_with_a_culprit(dir.path(), culprit, failure);
            ended.fails(code, &[&format!("corro: rank {culprit} of 4 on localhost ended with {says}")]);
        }
    }
}

/// Long before their own timeout of ten minutes.
#[test]
fn waiting_ranks_name_the_rank_that_has_ended() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for culprit in [0, 2] {
        let ended = run_with_a_culprit(dir.path(), culprit, "early, and well");
        let reason = format!("rank {culprit} on host localhost ended with exit code 0 before all ranks had joined");
        ended.fails(1, &[&reason]);
    }
}
