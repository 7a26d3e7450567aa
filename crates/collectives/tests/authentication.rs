//! Unauthenticated processes can neither join a job nor keep its ranks from connecting.

mod processes;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use processes::{Gang, Rank, new_job, own_command, sockets_of, torchrun, until, variables};

const TCP: (&str, &str) = ("CORRO_TRANSPORT", "tcp");
const SHARED: (&str, &str) = ("CORRO_TRANSPORT", "shm");
const SECRET: &str = "CORRO_JOB_SECRET";

fn start(rank: usize, size: usize, job: &str, more: &[(&str, &str)]) -> Rank {
    Rank::start(own_command(), &[torchrun(rank, size, job), variables(more)].concat())
}

/// The TCP ports on which a process listens.
fn ports_of(pid: u32) -> Vec<u16> {
    let inodes = sockets_of(pid);
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(3) == Some(&"0A") && inodes.iter().any(|inode| fields.get(9) == Some(&inode.as_str()));
        let port = fields.get(1)?.rsplit_once(':')?.1;
        listens.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(port).collect()
}

/// The abstract Unix sockets on which a process listens.
fn names_of(pid: u32) -> Vec<String> {
    let inodes = sockets_of(pid);
    let table = fs::read_to_string("/proc/net/unix").expect("the kernel lists its sockets");
    let name = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = inodes.iter().any(|inode| fields.get(6) == Some(&inode.as_str()));
        ours.then(|| fields.get(7)?.strip_prefix('@').map(str::to_owned)).flatten()
    };
    table.lines().filter_map(name).collect()
}

#[test]
fn unauthenticated_connections_do_not_keep_ranks_from_connecting() {
    for (transport, secret) in [(TCP, "s3"), (SHARED, "s3")] {
        let (job, more) = (new_job(), [transport, (SECRET, secret)]);
        // Rank 2 starts late, so that the others listen meanwhile.
        let mut gang = Gang { ranks: vec![start(0, 3, &job, &more), start(1, 3, &job, &more)] };
        let pids: Vec<u32> = gang.ranks.iter().map(|rank| rank.child.id()).collect();
        until("both listen", || pids.iter().all(|pid| !ports_of(*pid).is_empty() && !names_of(*pid).is_empty()));
        let mut silent: Vec<Box<dyn std::any::Any>> = Vec::new();
        for port in pids.iter().flat_map(|pid| ports_of(*pid)) {
            for nth in 0..20 {
                let mut stranger =
                    TcpStream::connect(("127.0.0.1", port)).or_else(|_| TcpStream::connect(("::1", port)));
                if let (Ok(stream), 0) = (&mut stranger, nth % 2) {
                    // The rank may close the connection at any moment.
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: corro\r\n\r\n");
                }
                silent.extend(stranger.ok().map(|stranger| Box::new(stranger) as Box<dyn std::any::Any>));
            }
        }
        for name in pids.iter().flat_map(|pid| names_of(*pid)) {
            let address = SocketAddr::from_abstract_name(&name).expect("a name");
            for _ in 0..20 {
                let stranger = UnixStream::connect_addr(&address);
                silent.extend(stranger.ok().map(|stranger| Box::new(stranger) as Box<dyn std::any::Any>));
            }
        }
        assert!(silent.len() > 20, "{} strangers connected", silent.len());
        let began = Instant::now();
        gang.ranks.push(start(2, 3, &job, &more));
        gang.wait_all("ready");
        println!("{transport:?}: connected in {:.1?} among {} strangers", began.elapsed(), silent.len());
        // Silent connections are not waited for; their handshake timeout is 5 seconds.
        assert!(began.elapsed() < Duration::from_secs(4), "{transport:?}: {:?}", began.elapsed());
        gang.run_all("reduce a 1000");
        gang.leave();
    }
}

#[test]
fn a_rank_with_a_wrong_secret_is_refused_with_a_reason_on_both_sides() {
    std::thread::scope(|scope| {
        for transport in [TCP, SHARED] {
            for (wrong, reason) in
                [(Some("s4"), "does not know the job's secret"), (None, "CORRO_JOB_SECRET to every rank")]
            {
                scope.spawn(move || {
                    let (job, limit) = (new_job(), ("HOROVOD_GLOO_TIMEOUT_SECONDS", "2"));
                    let wrong: Vec<(&str, &str)> = wrong.iter().map(|secret| (SECRET, *secret)).collect();
                    let mut right = start(0, 2, &job, &[transport, limit, (SECRET, "s3")]);
                    let mut other = start(1, 2, &job, &[&wrong[..], &[transport, limit]].concat());
                    let refused = other.wait_for("refused");
                    assert!(refused.contains(reason), "the stranger: {refused}");
                    let refused = right.wait_for("refused");
                    assert!(refused.contains("rank 1 did not join"), "rank 0: {refused}");
                    assert!(refused.contains("secret"), "rank 0: {refused}");
                });
            }
        }
    });
}
