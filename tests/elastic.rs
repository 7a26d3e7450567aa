//! Trainings that grow and shrink under `corro run --min-np`: real processes that are killed, added and removed.

mod harness;

#[path = "elastic/rank.rs"]
mod rank;
#[path = "elastic/training.rs"]
mod training;

use corro_test_support::rng::SplitMix64;
use harness::{CommandOutput, signal, wait_for};
use rustix::process::Signal;
use training::{Training, command, directory, processes};

const DISCOVERY: [&str; 2] = ["--host-discovery-script", "cat hosts"];

#[test]
fn a_killed_rank_is_started_again_and_the_others_go_on() {
    let options = ["--min-np", "2", "--max-np", "3", "--output-filename", "logs"];
    let training = Training::start(directory(""), &options);
    let first = training.wait_for_generation(0, 3);
    assert_eq!((processes(&first), first[0].generation), (vec![1, 2, 3], 1));
    signal(first[0].pid, Signal::KILL);
    let whole = training.wait_for_generation(1, 3);
    assert_eq!(processes(&whole), [2, 3, 4], "survivors keep their order");
    // One after the other in the files of their slot.
    let expected = "process 1 is rank 0 of 3\nprocess 4 is rank 2 of 3\n";
    wait_for("the output of both processes", || training.read("logs/rank.0/stdout").starts_with(expected));
    let ended = training.complete().ok();
    assert!(ended.stdout.contains("[0]<stdout>:process 4 is rank 2 of 3\n"), "{}", ended.stdout);
    for line in [
        "corro: generation 1: 3 processes\n",
        "corro: process 1 (rank 0 on localhost) ended with signal 9 (SIGKILL)\n",
        "left: it failed",
        "restarted process 4 joined on localhost as rank 2\n",
    ] {
        assert!(ended.stderr.contains(line), "{line} in {}", ended.stderr);
    }
}

/// Random ranks are killed, several at a time, as long as one is left.
#[test]
fn random_deaths_never_stop_the_training() {
    let seed = 28;
    let mut rng = SplitMix64::new(seed);
    let training = Training::start(directory(""), &["--min-np", "1", "--max-np", "4"]);
    let mut members = training.wait_for_generation(0, 4);
    for round in 0..6 {
        let survivor = rng.index(members.len());
        let victims: Vec<_> = members.iter().filter(|place| place.rank != survivor && rng.one_in(2)).cloned().collect();
        victims.iter().for_each(|victim| signal(victim.pid, Signal::KILL));
        if victims.is_empty() {
            continue;
        }
        let generation = members[0].generation;
        members = training.wait_for_generation(generation, 4);
        let is_killed = |process: &u64| victims.iter().any(|victim| victim.process == *process);
        assert!(!processes(&members).iter().any(is_killed), "round {round} of seed {seed}: {members:?}");
    }
    training.complete().ok();
}

#[test]
fn hosts_of_the_discovery_script_come_and_go() {
    let options = [&DISCOVERY[..], &["--min-np", "1", "--max-np", "3"]].concat();
    let training = Training::start(directory("localhost:1\n"), &options);
    let first = training.wait_for_generation(0, 1);
    training.set_hosts("localhost:1\n127.0.0.1:2\n");
    let grown = training.wait_for_generation(first[0].generation, 3);
    assert_eq!(processes(&grown)[0], 1, "rank 0 has the state");
    let hosts: Vec<&str> = grown.iter().map(|place| place.host.as_str()).collect();
    assert_eq!(hosts, ["localhost", "127.0.0.1", "127.0.0.1"]);
    training.set_hosts("127.0.0.1:2\n");
    let shrunk = training.wait_for_generation(grown[0].generation, 2);
    assert_eq!(processes(&shrunk), processes(&grown)[1..], "no process is started again");
    let ended = training.complete().ok();
    for line in [
        "joined on 127.0.0.1 as rank 1",
        "generation 3: 2 processes instead of 3; process 1 (rank 0) left: its host is not listed any more\n",
    ] {
        assert!(ended.stderr.contains(line), "{line} in {}", ended.stderr);
    }
    assert!(ended.stdout.contains("[0]<stdout>:dismissed\n"), "{}", ended.stdout);
}

/// A failure excludes the host, which returns after the cooldown.
#[test]
fn a_host_with_a_failure_returns_after_its_cooldown() {
    let cooldown = ["--min-np", "1", "--blacklist-cooldown-range", "0.2", "0.4"];
    let training = Training::start(directory("localhost:1\n127.0.0.1:2\n"), &[&DISCOVERY[..], &cooldown].concat());
    let first = training.wait_for_generation(0, 3);
    signal(first[1].pid, Signal::KILL);
    let again = training.wait_for_generation(1, 3);
    assert_eq!(processes(&again)[0], 1);
    assert!(!processes(&again).contains(&3), "the other process of the host was killed");
    let ended = training.complete().ok();
    for line in ["corro: host 127.0.0.1 is excluded for 0.", "process 3 (rank 2) left: its host was excluded"] {
        assert!(ended.stderr.contains(line), "{line} in {}", ended.stderr);
    }
}

/// Upstream's issue 3494: survivors below the minimum wait for ever.
#[test]
fn survivors_below_the_minimum_end_with_the_elastic_timeout() {
    let options = [&DISCOVERY[..], &["--min-np", "2", "--elastic-timeout", "1"]].concat();
    let training = Training::start(directory("localhost:1\n127.0.0.1:1\n"), &options);
    let first = training.wait_for_generation(0, 2);
    signal(first[1].pid, Signal::KILL);
    let ended = training.wait();
    let text =
        "the training has ended: 1 of at least 2 processes were ready within 1 s, and the hosts have 1 usable slots";
    ended.fails(137, &[text]);

    // Hosts that come in time save it.
    let options = [&DISCOVERY[..], &["--min-np", "2", "--elastic-timeout", "600"]].concat();
    let training = Training::start(directory("localhost:1\n127.0.0.1:1\n"), &options);
    let first = training.wait_for_generation(0, 2);
    signal(first[1].pid, Signal::KILL);
    training.wait_for_stderr("host 127.0.0.1 is excluded for good");
    training.set_hosts("localhost:1\n127.0.0.2:1\n");
    assert_eq!(processes(&training.wait_for_generation(1, 2))[0], 1);
    training.complete().ok();
}

#[test]
fn resets_are_limited() {
    let training = Training::start(directory(""), &["--min-np", "1", "--max-np", "2", "--reset-limit", "1"]);
    let first = training.wait_for_generation(0, 2);
    training.write("fail.1", "7");
    training.wait_for_stderr("process 1 (rank 0 on localhost) ended with exit code 7");
    let whole = training.wait_for_generation(first[0].generation, 2);
    assert_eq!(processes(&whole), [2, 3]);
    training.write("fail.3", "8");
    let text = "Horovod was shutdown because number of resets during elastic job exceeded limit: 1";
    training.wait().fails(8, &[text]);
}

#[test]
fn processes_that_never_join_end_the_training() {
    let dir = directory("");
    std::fs::write(dir.path().join("never-joins"), "").expect("written");
    let training = Training::start(dir, &["--min-np", "1", "--max-np", "2"]);
    training.wait().fails(3, &["the training has ended: all processes failed before the training began"]);
}

#[test]
fn failures_of_the_discovery_script_are_explained() {
    let run = |script: &str, hosts: &str| {
        let dir = directory(hosts);
        let output = command(dir.path(), &["--min-np", "1", "--host-discovery-script", script], &["true"]).output();
        CommandOutput::from(output.expect("it runs"))
    };
    let failed = "the host discovery script cat missing failed at its first call: it ended with exit code 1: cat:";
    run("cat missing", "").fails(1, &[failed]);
    run("cat hosts", "localhost\n").fails(1, &["write 'localhost:SLOTS', or give --slots-per-host"]);
    run("cat hosts", "localhost 2\n").fails(1, &["is 'localhost 2': write HOST or HOST:SLOTS"]);
    run("cat hosts", "worker-7.example:1\n").fails(1, &["worker-7.example", "this machine only"]);
    // A job whose script does not use Horovod ends with its processes.
    run("cat hosts", "localhost:2\n").ok();

    // Later failures change nothing.
    let training = Training::start(directory("localhost:1\n"), &[&DISCOVERY[..], &["--min-np", "1"]].concat());
    let first = training.wait_for_generation(0, 1);
    training.set_hosts("nonsense here\n");
    training.wait_for_stderr("the host discovery script cat hosts failed, and the hosts stay as they were: line 1");
    training.set_hosts("localhost:2\n");
    let grown = training.wait_for_generation(1, 2);
    assert_eq!(processes(&grown)[0], first[0].process);
    training.complete().ok();
}

/// Ctrl-C, SIGTERM, and the death of `corro` itself.
#[test]
fn nothing_is_left_behind() {
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::KILL, -1)] {
        let training = Training::start(directory(""), &["--min-np", "1", "--max-np", "2"]);
        training.wait_for_generation(0, 2);
        training.signal(sent);
        assert_eq!(training.wait().code, code, "{sent:?}");
    }
}

#[test]
fn a_closed_output_ends_the_training() {
    let dir = directory("");
    let script = "while :; do echo y; done";
    let mut command = command(dir.path(), &["--min-np", "1", "--max-np", "2"], &["sh", "-c", script]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let mut status = None;
    wait_for("the launcher to end", || {
        status = child.try_wait().expect("it can be waited for");
        status.is_some()
    });
}

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank_of_an_elastic_training() {
    rank::run();
}

/// Starts ranks with the real engine.
fn start_ranks(hosts: &str, options: &[&str]) -> Training {
    let program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("a path that is text");
    let rank = [program, "--exact", "a_rank_of_an_elastic_training", "--ignored", "--nocapture"];
    Training::start_program(directory(hosts), options, &rank)
}

/// Generations and the steps with which they began never go back, and the state outlives every generation.
fn check_steps(training: &Training) {
    let text = training.read("steps");
    let number = |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<f64>>();
    let mut begins: Vec<Vec<f64>> = text.lines().map(number).collect();
    begins.sort_by(|one, other| one[0].total_cmp(&other[0]));
    for pair in begins.windows(2) {
        let is_same = pair[0][0] == pair[1][0];
        assert!(if is_same { pair[0][1] == pair[1][1] } else { pair[0][1] <= pair[1][1] }, "{text}");
    }
    assert!(begins.last().is_some_and(|last| last[1] > 0.0), "{text}");
}

/// Random ranks die, rank 0 too, alone or several at a time. Survivors finish the training with the right sums.
#[test]
fn real_ranks_survive_random_deaths() {
    let seed = 2028;
    let mut rng = SplitMix64::new(seed);
    let training = start_ranks("", &["--min-np", "1", "--max-np", "4"]);
    let mut members = training.wait_for_generation(0, 4);
    for _round in 0..5 {
        let survivor = rng.index(members.len());
        let is_victim =
            |place: &&training::Place| place.rank != survivor && (place.rank == (survivor + 1) % 4 || rng.one_in(3));
        let victims: Vec<u32> = members.iter().filter(is_victim).map(|place| place.pid).collect();
        victims.iter().for_each(|victim| signal(*victim, Signal::KILL));
        members = training.wait_for_generation(members[0].generation, 4);
    }
    wait_for("steps", || training.read("steps").lines().count() > 8);
    check_steps(&training);
    training.complete().ok();
}

#[test]
fn real_ranks_follow_the_discovery_script() {
    let training = start_ranks("localhost:2\n", &[&DISCOVERY[..], &["--min-np", "1", "--max-np", "4"]].concat());
    let mut members = training.wait_for_generation(0, 2);
    for (hosts, size) in [("localhost:2\n127.0.0.1:2\n", 4), ("127.0.0.1:2\n", 2), ("127.0.0.1:1\nlocalhost:2\n", 3)] {
        training.set_hosts(hosts);
        members = training.wait_for_generation(members[0].generation, size);
    }
    check_steps(&training);
    training.complete().ok();
}
