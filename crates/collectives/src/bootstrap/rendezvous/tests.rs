//! Rendezvous of ranks that are threads, at a key-value server and at rank 0, with missing, foreign and silent peers.

mod kv_server;

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::auth::Secret;
use crate::bootstrap::rank_info::RankInfo;
use crate::bootstrap::rendezvous_method::{Rank0Host, Rank0Rendezvous};
use kv_server::KvServer;

fn launch(rank: usize, size: usize, method: &RendezvousMethod, secret: Option<&str>) -> Launch {
    Launch {
        rank_info: RankInfo { rank, size, ..RankInfo::single() },
        rendezvous: method.clone(),
        secret: secret.map(Secret::new),
        interface: None,
        ports: None,
        timeout: Duration::from_secs(30),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn shortly() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn blob(round: u64, rank: usize) -> Vec<u8> {
    format!("round {round} rank {rank}").into_bytes()
}

/// A rendezvous at rank 0 with a job id of its own.
fn at_rank0(host: Rank0Host) -> RendezvousMethod {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (pid, nth) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    RendezvousMethod::Rank0(Rank0Rendezvous {
        job_id: format!("test {pid} {nth}"),
        host,
        launcher_socket: None,
        has_unique_id: true,
    })
}

type Outcome = Result<Vec<Vec<u8>>, RendezvousError>;

fn exchange_all(launches: Vec<Launch>, round: u64, deadline: Instant) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = launches
            .iter()
            .map(|launch| scope.spawn(move || exchange(launch, round, &blob(round, launch.rank_info.rank), deadline)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Checks `n_rounds` rendezvous of all ranks.
fn check(size: usize, method: &RendezvousMethod, secret: Option<&str>, n_rounds: u64) {
    let launches: Vec<Launch> = (0..size).map(|rank| launch(rank, size, method, secret)).collect();
    for round in 0..n_rounds {
        let expected: Vec<Vec<u8>> = (0..size).map(|rank| blob(round, rank)).collect();
        for outcome in exchange_all(launches.clone(), round, soon()) {
            assert_eq!(outcome.unwrap(), expected);
        }
        for launch in &launches {
            clean_up(launch, round, soon()).unwrap();
        }
    }
}

fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[test]
fn a_single_process_gets_its_own_blob() {
    check(1, &RendezvousMethod::SingleProcess, None, 2);
}

#[test]
fn at_a_server_like_upstreams() {
    let server = KvServer::start(false);
    check(5, &server.rendezvous_method(), Some("s3"), 3);
    check(2, &server.rendezvous_method(), None, 1);
    assert_eq!(server.keys(), [""; 0], "all keys are deleted");
}

#[test]
fn at_a_server_with_keep_alive_and_long_polling() {
    let server = KvServer::start(true);
    check(5, &server.rendezvous_method(), Some("s3"), 3);
    assert_eq!(server.keys(), [""; 0]);
    assert!(server.n_connections() <= 3 * 5 * 2, "{} connections for three rounds", server.n_connections());
}

#[test]
fn a_failed_request_is_retried() {
    let server = KvServer::start(true);
    server.fail_next(2);
    check(2, &server.rendezvous_method(), None, 1);
    server.fail_next(100);
    let outcome = exchange(&launch(0, 2, &server.rendezvous_method(), None), 7, b"", soon());
    let error = chain(&outcome.unwrap_err());
    assert!(error.contains("PUT /corro_7/0 returned status 500"), "{error}");
}

#[test]
fn missing_ranks_are_named_by_all_ranks_at_a_server() {
    for waits in [false, true] {
        let server = KvServer::start(waits);
        let launches = [0, 2].map(|rank| launch(rank, 4, &server.rendezvous_method(), None)).to_vec();
        for outcome in exchange_all(launches, 0, shortly()) {
            let error = outcome.unwrap_err();
            assert!(matches!(&error, RendezvousError::Missing { ranks, .. } if ranks.0 == [1, 3]), "{error:?}");
        }
    }
}

#[test]
fn a_rank_without_the_secret_is_named_at_a_server() {
    let server = KvServer::start(false);
    let launches =
        vec![launch(0, 2, &server.rendezvous_method(), Some("s3")), launch(1, 2, &server.rendezvous_method(), None)];
    let outcomes = exchange_all(launches, 0, soon());
    assert!(matches!(outcomes[0], Err(RendezvousError::Unsigned { rank: 1 })), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(RendezvousError::WithoutSecret { rank: 0 })), "{outcomes:?}");
}

#[test]
fn an_unreachable_server_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let method = RendezvousMethod::KeyValue { addr: "127.0.0.1".to_owned(), port };
    let error = exchange(&launch(1, 2, &method, None), 0, b"", shortly()).unwrap_err();
    assert!(chain(&error).contains(&format!("key-value server at 127.0.0.1:{port}: cannot connect")), "{error:?}");
}

#[test]
fn at_rank_0_on_one_host() {
    check(2, &at_rank0(Rank0Host::SameHost), None, 20);
    check(16, &at_rank0(Rank0Host::SameHost), Some("s3"), 2);
}

#[test]
fn at_rank_0_by_address() {
    for address in ["127.0.0.1", "localhost"] {
        check(4, &at_rank0(Rank0Host::Address(address.to_owned())), Some("s3"), 3);
    }
    check(3, &at_rank0(Rank0Host::Candidates(vec!["127.0.0.1".to_owned()])), None, 1);
}

/// As under a Slurm whose nodes have addresses but no names: `srun` set `n[1-4]`, and `n1` could not be resolved.
#[test]
fn at_rank_0_by_a_name_that_is_not_resolved() {
    // An invalid name, so that no name server is queried.
    let method = at_rank0(Rank0Host::Address("no..name".to_owned()));
    check(4, &method, Some("s3"), 2);
    let error = chain(&exchange(&launch(1, 2, &method, None), 0, b"", shortly()).unwrap_err());
    assert!(error.contains("cannot resolve the host name no..name: set MASTER_ADDR"), "{error}");
}

#[test]
fn over_tcp_when_the_unix_socket_is_unreachable() {
    let RendezvousMethod::Rank0(here) = at_rank0(Rank0Host::Address("127.0.0.1".to_owned())) else {
        unreachable!("it is hosted")
    };
    let address = rank0_address::Rank0Address::new(&here, 0, 2);
    // The first port is in use, and another peer connects and sends nothing.
    let _stranger = TcpListener::bind(("127.0.0.1", address.ports[0]));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| rank0_server::receive_all(&address, None, b"zero".to_vec(), soon()));
        let mut silent = Vec::new();
        let deadline = soon();
        let stream = loop {
            assert!(Instant::now() < deadline, "rank 0 does not listen");
            let reached = address.ports[1..].iter().find_map(|port| TcpStream::connect(("127.0.0.1", *port)).ok());
            match reached {
                Some(stream) if silent.is_empty() => silent.push(stream),
                Some(stream) => break timed_stream::Stream::from(stream),
                None => std::thread::yield_now(),
            }
        };
        crate::auth::authenticate(stream.until(soon()), None, &address.context, crate::auth::Role::Dialer).unwrap();
        let all = rank0_client::exchange_blobs(&stream, 2, 1, b"one", soon()).unwrap();
        assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
        assert_eq!(host.join().unwrap().unwrap().0, all);
    });
}

#[test]
fn two_jobs_on_one_machine_do_not_mix() {
    let (one, other) = (at_rank0(Rank0Host::SameHost), at_rank0(Rank0Host::SameHost));
    let launches = vec![launch(0, 2, &one, None), launch(1, 2, &other, None)];
    let outcomes = exchange_all(launches, 0, shortly());
    assert!(matches!(&outcomes[0], Err(RendezvousError::Missing { ranks, .. }) if ranks.0 == [1]), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(RendezvousError::NoRank0 { .. })), "{outcomes:?}");
}

#[test]
fn missing_ranks_are_named_to_all_ranks_at_rank_0() {
    let method = at_rank0(Rank0Host::SameHost);
    let launches = [0, 1, 3].map(|rank| launch(rank, 4, &method, None)).to_vec();
    let outcomes = exchange_all(launches, 0, shortly());
    assert!(matches!(&outcomes[0], Err(RendezvousError::Missing { ranks, .. }) if ranks.0 == [2]), "{outcomes:?}");
    for outcome in &outcomes[1..] {
        let error = outcome.as_ref().unwrap_err().to_string();
        assert!(error.contains("rank 2 did not join the rendezvous"), "{error}");
    }
}

#[test]
fn a_rank_with_another_secret_is_refused() {
    let method = at_rank0(Rank0Host::SameHost);
    let outcomes = exchange_all(vec![launch(0, 2, &method, Some("a")), launch(1, 2, &method, Some("b"))], 0, shortly());
    for outcome in outcomes {
        let error = chain(&outcome.unwrap_err());
        assert!(error.contains("the peer does not know the job's secret"), "{error}");
    }
}

/// An authenticated connection to rank 0.
fn authenticated(address: &rank0_address::Rank0Address) -> timed_stream::Stream {
    let deadline = soon();
    let stream = loop {
        assert!(Instant::now() < deadline, "rank 0 does not listen");
        match UnixStream::connect_addr(&address.unix().unwrap()) {
            Ok(stream) => break timed_stream::Stream::from(stream),
            Err(_) => std::thread::yield_now(),
        }
    };
    crate::auth::authenticate(stream.until(soon()), None, &address.context, crate::auth::Role::Dialer).unwrap();
    stream
}

#[test]
fn foreign_processes_are_refused_and_the_rendezvous_goes_on() {
    let RendezvousMethod::Rank0(here) = at_rank0(Rank0Host::SameHost) else { unreachable!("it is at rank 0") };
    let address = rank0_address::Rank0Address::new(&here, 0, 2);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| rank0_server::receive_all(&address, None, b"zero".to_vec(), soon()));
        for (rank, size, expected) in [
            (
                1,
                3,
                "another world of 2 ranks meets at the job's socket on this host, and this process is rank 1 of a world of 3",
            ),
            (2, 2, "rank 2 is out of range in a world of 2"),
            (0, 2, "a world of 2 ranks already meets at the job's socket on this host"),
        ] {
            let error = rank0_client::exchange_blobs(&authenticated(&address), size, rank, b"x", soon())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (all, _member) = rank0_client::join(&address, 1, None, b"one", soon()).unwrap();
        assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
        assert_eq!(host.join().unwrap().unwrap().0, all);
    });
}

#[test]
fn a_second_rank_0_is_refused() {
    let method = at_rank0(Rank0Host::SameHost);
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..2).map(|_| scope.spawn(|| exchange(&launch(0, 2, &method, None), 0, &blob(0, 0), soon()))).collect();
        wait_until_one_is_refused(&ranks);
        exchange(&launch(1, 2, &method, None), 0, &blob(0, 1), soon()).unwrap();
        let outcomes: Vec<Outcome> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        let refused: Vec<String> =
            outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(|e| chain(e)).collect();
        assert!(refused.len() == 1 && refused[0].contains("choose another MASTER_PORT"), "{outcomes:?}");
    });
}

fn wait_until_one_is_refused(ranks: &[std::thread::ScopedJoinHandle<'_, Outcome>]) {
    let deadline = soon();
    while !ranks.iter().any(|rank| rank.is_finished()) {
        assert!(Instant::now() < deadline, "none of them is refused");
        std::thread::yield_now();
    }
}

#[test]
fn a_rank_that_leaves_early_is_named_to_all() {
    for _ in 0..100 {
        let RendezvousMethod::Rank0(here) = at_rank0(Rank0Host::SameHost) else { unreachable!("it is at rank 0") };
        let address = rank0_address::Rank0Address::new(&here, 0, 4);
        let all_named = std::thread::scope(|scope| {
            let host = scope.spawn(|| rank0_server::receive_all(&address, None, Vec::new(), soon()));
            let waiting = scope.spawn(|| rank0_client::join(&address, 1, None, b"one", shortly()));
            let leaving = rank0_client::exchange_blobs(
                &authenticated(&address),
                4,
                3,
                b"three",
                Instant::now() + Duration::from_millis(50),
            );
            assert!(matches!(leaving, Err(RendezvousError::Rank0Lost(_))), "{leaving:?}");
            let error = host.join().unwrap().err().expect("rank 3 has left");
            let RendezvousError::Left { rank: 3, missing } = &error else { panic!("{error:?}") };
            let error_1 = waiting.join().unwrap().err().expect("rank 3 has left").to_string();
            // Rank 1 may have joined too late to be notified.
            missing.0 == [2] && error_1.contains("rank 3 ended, or gave up, before rank 2 had joined")
        });
        if all_named {
            return;
        }
    }
    panic!("rank 1 was never notified");
}

#[test]
fn a_failed_rank_is_named_at_once_at_a_server() {
    let server = KvServer::start(true);
    let (addr, port) = match server.rendezvous_method() {
        RendezvousMethod::KeyValue { addr, port } => (addr, port),
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        let method = &server.rendezvous_method();
        let ranks = [0, 1].map(|rank| {
            let launch = launch(rank, 3, method, None);
            scope.spawn(move || exchange(&launch, 0, b"", soon()))
        });
        let mut launcher = kv_client::KvClient::new(&addr, port);
        launcher.put("/corro_0/failed", b"2 rank 2 on host n1 ended with exit code 1", soon()).unwrap();
        for rank in ranks {
            let error = rank.join().unwrap().unwrap_err();
            assert!(matches!(&error, RendezvousError::PeerFailed { .. }), "{error:?}");
            assert!(error.to_string().contains("rank 2 on host n1 ended with exit code 1"), "{error}");
        }
    });
}

#[test]
fn rank_0_notices_that_it_is_not_on_the_launchers_host() {
    let method = at_rank0(Rank0Host::Candidates(vec!["192.0.2.77".to_owned()]));
    let error = exchange(&launch(0, 2, &method, None), 0, b"", soon()).unwrap_err().to_string();
    assert!(error.contains("set MASTER_ADDR"), "{error}");
}
