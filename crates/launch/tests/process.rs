//! Processes under guards: their exits, and that nothing is left of them.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use corro_test_support::skip;

use common::{DEADLINE, alive, example, launcher, run_to_end, shell, tag, until};
use corro_launch::exit::Exit;
use corro_launch::kill_tagged::{kill_by_tag_prefix, processes_with_tag};
use corro_launch::lines::{Mode, pump};
use corro_launch::process::{Launcher, Process, SpawnError};
use corro_launch::process_spec::{Input, ProcessSpec};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// A script that prints its own pid and those of four descendants that try to escape: in the background, in a new session, by a double fork
/// whose parent has ended, and one that ignores SIGTERM and cleared its environment. Then runs `last`.
fn escaping(last: &str) -> String {
    format!(
        "sleep 1000 & echo $!
         setsid sh -c 'echo $$; exec sleep 1000' &
         sh -c '(setsid sh -c \"echo \\$\\$; exec sleep 1000\" &) &'
         env -i PATH=\"$PATH\" setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 1000; done' &
         echo $$
         {last}"
    )
}

/// The five pids that `escaping` prints, and their stream, which must stay open.
async fn five_pids(process: &mut Process) -> (Vec<u32>, impl Sized + use<>) {
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("it prints in time");
        ids.push(line.expect("readable").expect("five lines").trim().parse().expect("an id"));
    }
    (ids, lines)
}

fn assert_gone(ids: &[u32]) {
    let left: Vec<_> = ids.iter().filter(|id| alive(**id)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn kill_9(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("an id fits")).expect("an id is not 0");
    kill_process(pid, Signal::KILL).expect("our own process can be killed");
}

#[tokio::test]
async fn the_exit_of_the_process_is_reported() {
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 3", Exit::Code(3)),
        ("exit 255", Exit::Code(255)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -INT $$", Exit::Signal(2)),
        ("kill -HUP $$", Exit::Signal(1)),
        ("kill -PIPE $$", Exit::Signal(13)),
    ] {
        let process = launcher().spawn(shell(&tag("end"), script)).await.expect("spawns");
        assert_eq!(run_to_end(process).await.exit, exit, "{script}");
    }
}

#[tokio::test]
async fn output_environment_and_directory_are_as_requested() {
    let mut spec = shell(&tag("env"), "pwd; cat; echo \"$A\"; echo \"${HOME-none}\"; echo oops >&2");
    spec.cwd = "/".into();
    spec.env.insert("A".into(), "b c".into());
    let ended = run_to_end(launcher().spawn(spec).await.expect("spawns")).await;
    assert_eq!(ended.stdout, "/\nb c\nnone\n", "cat found an empty stdin, and HOME was not inherited");
    assert_eq!(ended.stderr, "oops\n");
    assert_eq!(ended.exit, Exit::Code(0));
}

#[tokio::test]
async fn signals_have_default_actions_in_the_child() {
    // As under `nohup`, and with SIGCHLD ignored, with which the guard would lose the status of its child.
    let ignoring = "trap '' HUP TERM INT CHLD; exec \"$@\"";
    let output = tokio::process::Command::new("sh")
        .args(["-c", ignoring, "sh"])
        .args([example("launcher"), example("guard")])
        .args([&tag("signals"), "grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"])
        .output()
        .await
        .expect("the launcher runs");
    let text = String::from_utf8(output.stdout).expect("text");
    // The C library ignores its own signals, 32 and 33, whenever it spawns, and this cannot be changed.
    let own = 0b11 << 31;
    let masks: Vec<_> = text.lines().skip(1).map(|line| line.split_once(":\t").expect("a mask")).collect();
    assert_eq!(masks.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["SigBlk", "SigIgn"]);
    for (name, mask) in masks {
        assert_eq!(u64::from_str_radix(mask, 16).expect("hexadecimal") & !own, 0, "{name}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_start_prints_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "x").expect("writable");
    let orphan = folder.path().join("orphan");
    std::fs::write(&orphan, "#!/no/such/interpreter\n").expect("writable");
    Command::new("chmod").arg("+x").arg(&orphan).status().expect("chmod runs");
    for (program, code, text) in [
        ("no-such-program-here".to_owned(), 127, "corro: cannot start no-such-program-here: no such program\n"),
        (orphan.display().to_string(), 127, "the interpreter named in its first line is missing\n"),
        (plain.display().to_string(), 126, "Permission denied (os error 13)\n"),
    ] {
        let spec = ProcessSpec { argv: vec![program], ..shell(&tag("missing"), "") };
        let ended = run_to_end(launcher().spawn(spec).await.expect("the guard spawns")).await;
        assert_eq!(ended.exit, Exit::Code(code));
        assert!(ended.stderr.ends_with(text), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1);
    }
    let nowhere = ProcessSpec { cwd: folder.path().join("nowhere"), ..shell(&tag("cwd"), "true") };
    assert!(matches!(launcher().spawn(nowhere).await, Err(SpawnError::WorkingDirectory { .. })));
    let empty = ProcessSpec { argv: vec![], ..shell(&tag("empty"), "") };
    assert!(matches!(launcher().spawn(empty).await, Err(SpawnError::EmptyCommand)));
}

#[tokio::test]
async fn descendants_are_killed_when_the_main_process_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let go = folder.path().join("go");
    let script = escaping(&format!("until [ -e {} ]; do sleep 0.01; done; exit 5", go.display()));
    let mut process = launcher().spawn(shell(&tag("main-ends"), &script)).await.expect("spawns");
    let (ids, _stdout) = five_pids(&mut process).await;
    assert!(ids.iter().all(|id| alive(*id)));
    std::fs::write(&go, "").expect("writable");
    let exit = tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("waits");
    assert_eq!(exit, Exit::Code(5));
    assert_gone(&ids);
}

#[tokio::test]
async fn kill_ends_the_whole_tree() {
    let mut process = launcher().spawn(shell(&tag("kill"), &escaping("wait"))).await.expect("spawns");
    let (ids, _stdout) = five_pids(&mut process).await;
    process.stopper().kill();
    let exit = tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("waits");
    assert_eq!(exit, Exit::Signal(9));
    assert_gone(&ids);
}

#[tokio::test]
async fn terminate_lets_a_process_end_by_itself() {
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = launcher().spawn(shell(&tag("term"), script)).await.expect("spawns");
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    assert_eq!(lines.next_line().await.expect("readable").as_deref(), Some("ready"));
    let begin = Instant::now();
    // `wait` is not called meanwhile: the stopper notices the end by itself.
    process.stopper().terminate(DEADLINE).await;
    assert!(begin.elapsed() < DEADLINE);
    assert_eq!(lines.next_line().await.expect("readable").as_deref(), Some("bye"));
    assert_eq!(process.wait().await.expect("waits"), Exit::Code(7));
    process.stopper().kill();
}

#[tokio::test]
async fn terminate_kills_after_the_grace_period() {
    // The trap comes first, so that it is set when the pids are printed.
    let script = format!("trap '' TERM; {}", escaping("while :; do sleep 1; done"));
    let mut process = launcher().spawn(shell(&tag("stubborn"), &script)).await.expect("spawns");
    let (ids, _stdout) = five_pids(&mut process).await;
    let stopper = process.stopper();
    let (exit, ()) = tokio::join!(process.wait(), stopper.terminate(Duration::from_millis(100)));
    assert_eq!(exit.expect("waits"), Exit::Signal(9));
    assert_gone(&ids);
}

#[tokio::test]
async fn dropping_a_process_ends_its_tree_even_if_a_stopper_is_held() {
    let mut process = launcher().spawn(shell(&tag("drop"), &escaping("wait"))).await.expect("spawns");
    let (ids, _stdout) = five_pids(&mut process).await;
    let stopper = process.stopper();
    drop(process);
    tokio::time::timeout(DEADLINE, stopper.ended()).await.expect("the guard ends");
    assert_gone(&ids);
}

#[tokio::test]
async fn nothing_is_left_of_a_killed_launcher() {
    let tag = tag("launcher");
    let mut killed = Command::new(example("launcher"))
        .arg(example("guard"))
        .args([&tag, "sh", "-c", &escaping("wait")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the launcher starts");
    let mut lines =
        BufReader::new(tokio::process::ChildStdout::from_std(killed.stdout.take().expect("piped")).expect("async"))
            .lines();
    let mut ids: Vec<u32> = Vec::new();
    for _ in 0..6 {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("it prints in time");
        ids.push(line.expect("readable").expect("six lines").trim().parse().expect("an id"));
    }
    assert!(ids.iter().all(|id| alive(*id)));
    assert!(processes_with_tag(&tag).len() >= 4);
    kill_9(killed.id());
    killed.wait().expect("it was ours");
    until("the guard and its tree are gone", || !ids.iter().any(|id| alive(*id))).await;
    assert_eq!(processes_with_tag(&tag), Vec::<u32>::new());
}

#[tokio::test]
async fn processes_of_a_killed_guard_are_killed_by_tag() {
    // Without the one that cleared its environment, which cannot be found after its guard was killed.
    let script = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'echo up; exec sleep 1000' &); wait";
    let tag = tag("guard-killed");
    let mut process = launcher().spawn(shell(&tag, script)).await.expect("spawns");
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    assert_eq!(lines.next_line().await.expect("readable").as_deref(), Some("up"));
    until("the whole tree is up", || processes_with_tag(&tag).len() == 5).await;
    let ids = processes_with_tag(&tag);
    kill_9(process.pid());
    let exit = tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("waits");
    assert_eq!(exit, Exit::Signal(9));
    assert_gone(&ids);
    assert_eq!(lines.next_line().await.expect("readable"), None);
}

#[tokio::test]
async fn output_ends_even_if_a_leftover_holds_it() {
    let tag = tag("holder");
    let script = "env -i PATH=\"$PATH\" setsid sh -c 'echo $$; exec sleep 1000' & wait";
    let mut process = launcher().spawn(shell(&tag, script)).await.expect("spawns");
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    let holder: u32 = lines.next_line().await.expect("readable").expect("a line").parse().expect("an id");
    kill_9(process.pid());
    tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("waits");
    assert!(alive(holder), "out of reach, as the test means it to be");
    let end = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("the stream ends");
    assert_eq!(end.expect("readable"), None);
    kill_9(holder);
}

#[tokio::test]
async fn killing_by_tag_prefix_spares_other_tags() {
    let (mine, other) = (tag("sweep/1"), tag("sweep/10"));
    let mut first = launcher().spawn(shell(&format!("{mine}/a"), "echo; sleep 1000")).await.expect("spawns");
    let mut second = launcher().spawn(shell(&other, "echo; sleep 1000")).await.expect("spawns");
    for process in [&mut first, &mut second] {
        let mut lines = BufReader::new(process.stdout.as_mut().expect("not taken")).lines();
        lines.next_line().await.expect("readable").expect("started");
    }
    let killed = kill_by_tag_prefix(&format!("{mine}/"));
    assert!(killed.contains(&first.pid()) && killed.len() >= 2, "{killed:?}");
    assert_eq!(processes_with_tag(&format!("{mine}/")), Vec::<u32>::new());
    assert!(alive(second.pid()));
    assert_eq!(kill_by_tag_prefix(""), Vec::<u32>::new());
    assert!(alive(second.pid()));
    assert_eq!(first.wait().await.expect("waits"), Exit::Signal(9));
}

/// A process that left its parents, session and environment is still in its cgroup.
#[tokio::test]
async fn killing_a_cgroup_kills_all_its_processes() {
    let group = std::path::PathBuf::from(format!("/sys/fs/cgroup/pids/corro-test-{}", std::process::id()));
    if std::fs::create_dir(&group).is_err() {
        return skip::unsupported_machine("no control group can be made in /sys/fs/cgroup/pids");
    }
    let launcher = launcher().in_cgroups(vec![group.join("cgroup.procs")]);
    let script = "env -i PATH=\"$PATH\" setsid setsid sh -c 'echo $$; exec sleep 1000' & exec sleep 1000";
    let mut process = launcher.spawn(shell(&tag("group"), script)).await.expect("spawns");
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    let orphan: u32 = lines.next_line().await.expect("readable").expect("a line").parse().expect("an id");
    kill_9(process.pid());
    tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("waits");
    assert!(alive(orphan), "no tag leads to it");
    let killed = corro_launch::kill_tagged::kill_cgroup(&group);
    assert!(killed.contains(&orphan), "{killed:?}");
    until("the orphan to be dead", || !alive(orphan)).await;
    launcher.release_idle_guards().await;
    until("the group to be empty", || std::fs::remove_dir(&group).is_ok()).await;
    assert_eq!(corro_launch::kill_tagged::kill_cgroup(&group), Vec::<u32>::new(), "none is empty");
}

#[tokio::test]
async fn large_output_is_complete() {
    const BYTES: u64 = 200_000_000;
    let script = format!("yes 'a line of output, neither long nor short' | head -c {BYTES}");
    let mut process = launcher().spawn(shell(&tag("much"), &script)).await.expect("spawns");
    let stdout = process.stdout.take().expect("not taken");
    let (mut n_written, mut n_lines, mut torn) = (0, 0, 0);
    let pumped = pump(stdout, Mode::Lines, None, |block| {
        n_written += block.len() as u64;
        n_lines += block.iter().filter(|byte| **byte == b'\n').count() as u64;
        torn += u64::from(block.last() != Some(&b'\n'));
        Ok(())
    });
    let (n_read, exit) = tokio::join!(pumped, process.wait());
    assert_eq!(n_read.expect("readable"), BYTES);
    assert_eq!(exit.expect("waits"), Exit::Code(0));
    let line = "a line of output, neither long nor short\n".len() as u64;
    let missing_end = u64::from(!BYTES.is_multiple_of(line));
    assert_eq!((n_written, n_lines, torn), (BYTES + missing_end, BYTES.div_ceil(line), 0));
}

#[tokio::test]
async fn a_process_can_be_given_input_and_signals() {
    let plain = launcher().spawn(shell(&tag("plain"), "ls /proc/self/fd | wc -l")).await.expect("it starts");
    let n_open = run_to_end(plain).await.stdout;
    let spec = shell(
        &tag("input"),
        "trap 'echo caught; exit 4' USR1; cat; ls /proc/self/fd | wc -l; while :; do sleep 0.02; done",
    );
    let mut process = launcher().spawn_with(spec, Input::Pipe).await.expect("it starts");
    let mut stdin = process.stdin.take().expect("asked for");
    stdin.write_all(b"typed\n").await.expect("it reads");
    drop(stdin);
    let stopper = process.stopper();
    let mut lines = BufReader::new(process.stdout.take().expect("not taken")).lines();
    let mut said = Vec::new();
    while let Some(line) = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").expect("readable")
    {
        said.push(line.trim().to_owned());
        if said.len() == 2 {
            stopper.signal(Signal::USR1);
        }
    }
    // It has no more open descriptors than a process without input.
    assert_eq!(said, ["typed", n_open.trim(), "caught"]);
    assert_eq!(process.wait().await.expect("it is waited for"), Exit::Code(4));
}

/// Runs processes until one gets the guard of an earlier one; returns the pid of that guard.
async fn run_until_guard_is_reused(launcher: &Launcher) -> u32 {
    let mut seen = Vec::new();
    let again = async {
        loop {
            let name = tag(&format!("again-{}", seen.len()));
            let mut spec = shell(&name, "echo \"$CORRO_PROCESS_TAG $MINE\"; exit 3");
            spec.env.insert("MINE".into(), seen.len().to_string());
            let process = launcher.spawn(spec).await.expect("spawns");
            let pid = process.pid();
            let ended = run_to_end(process).await;
            assert_eq!((ended.stdout, ended.exit), (format!("{name} {}\n", seen.len()), Exit::Code(3)));
            if seen.contains(&pid) {
                return pid;
            }
            seen.push(pid);
        }
    };
    tokio::time::timeout(DEADLINE, again).await.expect("guards serve again")
}

#[tokio::test]
async fn a_guard_is_reused_and_has_no_tag_while_idle() {
    let launcher = launcher();
    let guard = run_until_guard_is_reused(&launcher).await;
    until("a guard that rests carries no tag", || processes_with_tag(&tag("again-")).is_empty()).await;
    assert!(alive(guard));
    // Killed while idle, which the next process does not notice.
    kill_9(guard);
    let other = run_until_guard_is_reused(&launcher).await;
    assert_ne!(other, guard);
    drop(launcher);
    until("a guard that rests goes with its launcher", || !alive(other)).await;
}

#[tokio::test]
async fn a_reused_guard_still_kills_an_escaping_tree() {
    let launcher = launcher();
    run_until_guard_is_reused(&launcher).await;
    let mut process = launcher.spawn(shell(&tag("tree"), &escaping("wait"))).await.expect("spawns");
    let (ids, _stdout) = five_pids(&mut process).await;
    process.stopper().kill();
    assert_eq!(process.wait().await.expect("it ends"), Exit::Signal(9));
    assert_gone(&ids);
    // A guard is reused after its process was killed, too.
    run_until_guard_is_reused(&launcher).await;
}

#[tokio::test]
async fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script");
    std::fs::write(&script, "echo \"$0 $1\"\n").expect("a script");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let mut spec = shell(&tag("script"), "");
    spec.argv = vec![script.display().to_string(), "word".into()];
    let ended = run_to_end(launcher().spawn(spec).await.expect("spawns")).await;
    assert_eq!(ended.stdout, format!("{} word\n", script.display()));
}

/// Covers a frozen launcher.
#[tokio::test]
async fn processes_end_at_the_deadline_unless_it_is_renewed() {
    let launcher = launcher();
    let soon = || Some(Instant::now() + Duration::from_secs(3));
    launcher.set_deadline(soon()).expect("there is memory");
    let mut process = launcher.spawn(shell(&tag("lease"), &escaping("sleep 1000"))).await.expect("it starts");
    let (ids, _output) = five_pids(&mut process).await;
    let renewed_until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < renewed_until {
        launcher.set_deadline(soon()).expect("there is memory");
        assert!(ids.iter().all(|id| alive(*id)), "the lease was renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("nothing to be left of the process", || ids.iter().all(|id| !alive(*id))).await;
    assert_eq!(process.wait().await.expect("the guard tells it"), Exit::Signal(9));
    launcher.set_deadline(None).expect("there is memory");
    assert_eq!(
        run_to_end(launcher.spawn(shell(&tag("lease-2"), "exit 3")).await.expect("it starts")).await.exit,
        Exit::Code(3)
    );
}
