//! Killed ranks: the others report which rank died, and nothing is left behind.

mod processes;

use std::fs;
use std::time::{Duration, Instant};

use processes::{
    Gang, Rank, hostname, new_job, own_command, sockets_of, torchrun, torchrun_without_id, until, variables,
};

/// The promise is two seconds; a machine that runs other tests at the same time needs more.
const LIMIT: Duration = Duration::from_secs(10);

const SHM: (&str, &str) = ("CORRO_DIRECT_READ", "0");
const CMA: (&str, &str) = ("CORRO_DIRECT_READ", "1");
const TCP: (&str, &str) = ("CORRO_TRANSPORT", "tcp");
const APIS: [(&str, &str); 2] = [("RANK_API", "ordered"), ("RANK_API", "named")];

/// State of the other ranks when one is killed.
#[derive(Clone, Copy, Debug)]
enum PeerActivity {
    /// Running one operation after another.
    Busy,
    /// Waiting for the victim in an operation.
    Waiting,
    Idle,
}

fn kill_in_turn(transport: (&str, &str)) {
    for api in APIS {
        for (victim, moment) in [
            (0, PeerActivity::Busy),
            (1, PeerActivity::Waiting),
            (2, PeerActivity::Idle),
            (0, PeerActivity::Waiting),
            (2, PeerActivity::Busy),
            (0, PeerActivity::Idle),
        ] {
            kill(3, &[transport, api], victim, moment);
        }
    }
}

fn kill(n: usize, variables: &[(&str, &str)], victim: usize, moment: PeerActivity) {
    let case = format!("{variables:?}, rank {victim} killed, others {moment:?}");
    let mut gang = Gang::connected(n, variables);
    gang.run_all("reduce first 1000");
    match moment {
        PeerActivity::Busy => {
            gang.send_all("again busy 300000");
            gang.wait_all("busy");
        }
        PeerActivity::Waiting => gang.others(victim).for_each(|(_, rank)| rank.send("reduce pending 300000")),
        PeerActivity::Idle => {}
    }
    let killed = Instant::now();
    gang.ranks[victim].kill();
    if let PeerActivity::Idle = moment {
        gang.others(victim).for_each(|(_, rank)| rank.send("reduce late 10"));
    }
    let named = format!("rank {victim} on host {} has died", hostname());
    for (rank, other) in gang.others(victim) {
        let failed = other.wait_for("failed");
        assert!(failed.contains(&named), "{case}: rank {rank} reported: {failed}");
    }
    let elapsed = killed.elapsed();
    println!("{case}: all failed within {elapsed:.1?}");
    assert!(elapsed < LIMIT, "{case}: {elapsed:?}");
    gang.others(victim).for_each(|(_, rank)| rank.send("reduce next 10"));
    for (rank, other) in gang.others(victim) {
        let failed = other.wait_for("failed next");
        assert!(failed.contains(&named), "{case}: rank {rank} reported next: {failed}");
    }
    assert!(killed.elapsed() < LIMIT, "{case}: {:?}", killed.elapsed());
}

#[test]
fn a_killed_rank_is_named_when_memory_is_shared() {
    kill_in_turn(SHM);
}

#[test]
fn a_killed_rank_is_named_when_memory_is_read_directly() {
    kill_in_turn(CMA);
}

#[test]
fn a_killed_rank_is_named_over_tcp() {
    kill_in_turn(TCP);
}

/// A child of a rank. Outlives the rank; killed at the end of the test.
struct Child(i32);

impl Child {
    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, state)| !state.trim_start().starts_with(['Z', 'X']))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0).expect("a process has a number");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// As for workers of PyTorch's `DataLoader`: the child inherits the descriptors of the rank, and survives when the rank is killed.
fn kill_beside_a_child(transport: (&str, &str), how: &str) {
    for api in APIS {
        for victim in [0, 1, 2] {
            let case = format!("{transport:?}, {api:?}, rank {victim} killed beside a child made by {how}");
            let mut gang = Gang::connected(3, &[transport, api]);
            gang.run_all("reduce first 1000");
            gang.ranks[victim].send(&format!("fork {how}"));
            let child = Child(gang.ranks[victim].wait_for("forked").parse().expect("a number"));
            gang.others(victim).for_each(|(_, rank)| rank.send("reduce pending 300000"));
            gang.ranks[victim].kill();
            let named = format!("rank {victim} on host {} has died", hostname());
            for (rank, other) in gang.others(victim) {
                let failed = other.wait_for("failed");
                assert!(failed.contains(&named), "{case}: rank {rank} reported: {failed}");
            }
            assert!(child.is_alive(), "{case}: the child was to be alive while the others were text");
        }
    }
}

#[test]
fn a_forked_child_does_not_hide_the_death_of_its_rank() {
    kill_beside_a_child(SHM, "libc");
    kill_beside_a_child(TCP, "libc");
}

#[test]
fn a_child_that_shares_every_descriptor_does_not_hide_the_death_of_its_rank() {
    kill_beside_a_child(SHM, "kernel");
}

#[test]
fn a_forked_child_that_ends_does_not_affect_its_rank() {
    for transport in [SHM, TCP] {
        for api in APIS {
            let mut gang = Gang::connected(2, &[transport, api]);
            gang.send_all("fork libc");
            let children: Vec<Child> =
                gang.ranks.iter_mut().map(|rank| Child(rank.wait_for("forked").parse().expect("a number"))).collect();
            gang.run_all("all beside");
            drop(children);
            gang.run_all("all after");
            gang.leave();
        }
    }
}

/// Operations that were negotiated but not started when a rank died fail too.
#[test]
fn a_death_fails_all_pending_operations() {
    let apart = [("RANK_API", "named"), ("HOROVOD_FUSION_THRESHOLD", "0")];
    for round in 0..20 {
        let mut gang = Gang::connected(2, &apart);
        gang.send_all("swarm busy 20000");
        gang.wait_all("busy");
        let victim = round % 2;
        gang.ranks[victim].kill();
        let named = format!("rank {victim} on host {} has died", hostname());
        for (_, other) in gang.others(victim) {
            let failed = other.wait_for("failed");
            assert!(failed.contains(&named), "round {round}: {failed}");
        }
    }
}

/// Kills a rank when it has opened `n_files` files, which is early or late during connection setup.
fn kill_while_connecting(variables: &[(&str, &str)], victim: usize, n_files: usize) {
    let mut gang = Gang::started(3, variables);
    let files = format!("/proc/{}/fd", gang.ranks[victim].child.id());
    until("it has opened files, or is there", || {
        fs::read_dir(&files).map_or(0, Iterator::count) >= n_files || gang.ranks[victim].has_output("ready")
    });
    gang.ranks[victim].kill();
    for (number, rank) in gang.others(victim) {
        // The victim may have been killed after the others needed it. Then the next operation fails.
        let text = rank.wait_for("re");
        if text == "ady" {
            rank.send("reduce late 10");
            rank.wait_for("failed late");
            continue;
        }
        // Rank 0 names the victim and aborts. A rank that connects only after that, on a busy machine, does not find rank 0. Ranks that have
        // joined before are tested separately (a_rank_that_dies_before_all_have_joined_is_named_to_all_that_have).
        let came_late = ["rank 0 was not found at ", "rank 0 closed the connection during the rendezvous"];
        let is_late = number != 0 && came_late.iter().any(|phrase| text.contains(phrase));
        let is_named = text.contains(&format!("rank {victim}")) || is_late;
        assert!(text.starts_with("fused") && is_named, "{text}");
    }
}

#[test]
fn a_rank_killed_before_all_are_connected_is_named() {
    std::thread::scope(|scope| {
        for transport in [SHM, TCP] {
            for (index, n_files) in [3, 5, 7, 8, 9, 10].into_iter().enumerate() {
                let variables = [transport, APIS[index / 3], ("HOROVOD_GLOO_TIMEOUT_SECONDS", "6")];
                scope.spawn(move || kill_while_connecting(&variables, index % 3, n_files));
            }
        }
    });
}

/// Starts a rank and waits until it has joined: of two processes that claim the rank, the one that is not refused has.
fn start_and_join(rank: usize, size: usize, job: &str, more: &[(&str, &str)]) -> Rank {
    let start = || Rank::start(own_command(), &[torchrun(rank, size, job), variables(more)].concat());
    let mut both = [start(), start()];
    until("one of them is refused", || both.iter().any(|rank| rank.has_output("refused")));
    let refused = both.iter().position(|rank| rank.has_output("refused")).expect("one of them is");
    let text = both[refused].wait_for("refused");
    assert!(
        text.contains(&format!("another process has already joined as rank {rank} of the world of {size}")),
        "{text}"
    );
    let [one, other] = both;
    if refused == 0 { other } else { one }
}

/// At once: the timeout of the ranks is twenty times as long as any wait of this test.
#[test]
fn a_rank_that_dies_before_all_have_joined_is_named_to_all_that_have() {
    let long_timeout = [("HOROVOD_GLOO_TIMEOUT_SECONDS", "600")];
    let job = new_job();
    let start = |rank| Rank::start(own_command(), &[torchrun(rank, 4, &job), variables(&long_timeout)].concat());
    let mut waiting = vec![start(0)];
    waiting.push(start_and_join(1, 4, &job, &long_timeout));
    let mut victim = start_and_join(2, 4, &job, &long_timeout);
    victim.kill();
    for rank in &mut waiting {
        let text = rank.wait_for("refused");
        assert!(text.contains("rank 2 ended, or gave up, before rank 3 had joined"), "{text}");
    }
}

/// A command with a session and a parent of its own, as if started in another terminal.
fn in_other_session() -> Vec<std::ffi::OsString> {
    let words = ["setsid", "sh", "-c", "\"$@\"; true", "sh"].map(std::ffi::OsString::from);
    words.into_iter().chain(own_command()).collect()
}

#[test]
fn worlds_that_use_one_port_without_a_secret_do_not_mix() {
    for api in APIS {
        let job = new_job();
        let start = |command, rank, size| {
            Rank::start(command, &[torchrun_without_id(rank, size, &job), variables(&[api])].concat())
        };
        let mut first = Gang { ranks: vec![start(own_command(), 0, 2)] };
        // Ranks of other worlds: from another terminal, from the same terminal, and with another size.
        for (command, rank, size, expected) in [
            (in_other_session(), 1, 2, "another world of 2 ranks meets at"),
            (in_other_session(), 0, 2, "a world of 2 ranks already meets at"),
            (own_command(), 0, 2, "choose another MASTER_PORT"),
            (own_command(), 2, 3, "this process is rank 2 of a world of 3 ranks"),
        ] {
            let text = start(command, rank, size).wait_for("refused");
            assert!(text.contains(expected) && text.contains("MASTER_PORT"), "{text}");
        }
        first.ranks.push(start(own_command(), 1, 2));
        first.wait_all("ready");
        first.run_all("reduce first 1000");
        first.leave();
    }
}

/// Two processes of each rank, from one parent and in one session: nothing tells which belong together.
#[test]
fn worlds_that_cannot_be_distinguished_are_aborted() {
    for size in [2, 3] {
        let job = new_job();
        let short_timeout = [("HOROVOD_GLOO_TIMEOUT_SECONDS", "3")];
        let start = |rank| {
            Rank::start(own_command(), &[torchrun_without_id(rank, size, &job), variables(&short_timeout)].concat())
        };
        // Rank 0 last, so that the others connect at once.
        let mut worlds: Vec<Rank> = (1..size).chain(1..size).chain([0, 0]).map(start).collect();
        let mut n_ambiguous = 0;
        for rank in &mut worlds {
            let text = rank.wait_for("re");
            // Ranks that connect after the abort time out.
            assert!(text.starts_with("fused"), "{text}");
            n_ambiguous += usize::from(text.contains("nothing tells which ranks belong together"));
        }
        assert!(n_ambiguous > 0);
    }
}

/// Sockets among `inodes` that have an abstract name.
fn named_sockets(inodes: &[String]) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").expect("the kernel lists its sockets");
    let ours = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 7 && inodes.iter().any(|inode| inode == fields[6])
    };
    table.lines().filter(ours).map(str::to_owned).collect()
}

fn shared_memory_files() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("corro")).collect()
}

#[test]
fn nothing_is_left_behind_when_all_are_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let temporary = ("TMPDIR", folder.path().to_str().expect("a path that is text"));
    for transport in [SHM, CMA, TCP] {
        for api in APIS {
            let job = new_job();
            let start = |rank| {
                let variables = [torchrun(rank, 3, &job), variables(&[transport, api, temporary])];
                Rank::start(own_command(), &variables.concat())
            };
            // Sockets of the rendezvous, while two ranks wait for the third, and later those of the connections.
            let mut gang = Gang { ranks: vec![start(0), start(1)] };
            let mut inodes = Vec::new();
            until("a rank has a socket that can be found", || {
                inodes = gang.ranks.iter().flat_map(|rank| sockets_of(rank.child.id())).collect();
                !named_sockets(&inodes).is_empty()
            });
            gang.ranks.push(start(2));
            let pids: Vec<u32> = gang.ranks.iter().map(|rank| rank.child.id()).collect();
            gang.wait_all("ready");
            inodes.extend(pids.iter().flat_map(|pid| sockets_of(*pid)));
            gang.send_all("again busy 300000");
            gang.wait_all("busy");
            inodes.extend(pids.iter().flat_map(|pid| sockets_of(*pid)));
            gang.ranks.iter_mut().for_each(|rank| rank.kill());
            assert!(pids.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).expect("can be asked")));
            until("no socket has a name", || named_sockets(&inodes).is_empty());
            assert_eq!(shared_memory_files(), Vec::<String>::new());
            let files = fs::read_dir(folder.path()).expect("a folder").count();
            assert_eq!(files, 0, "files in the temporary folder");
        }
    }
}
