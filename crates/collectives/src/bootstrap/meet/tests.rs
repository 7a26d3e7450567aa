//! Meetings of threads that play ranks, at a key-value server with upstream's manners and at rank 0; what happens when
//! someone does not come, is somebody else, or says nothing.

mod server;

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::bootstrap::place::{Host, Hosted, Place};
use crate::trust::Secret;
use server::Server;

fn launch(rank: usize, size: usize, meeting: &Meeting, secret: Option<&str>) -> Launch {
    Launch {
        place: Place { rank, size, ..Place::alone() },
        meeting: meeting.clone(),
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

/// A meeting no other test or process has.
fn hosted(host: Host) -> Meeting {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (pid, nth) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    Meeting::Hosted(Hosted { identity: format!("test {pid} {nth}"), host, kin: None, names_run: true })
}

type Outcome = Result<Vec<Vec<u8>>, MeetError>;

fn meet(launches: Vec<Launch>, round: u64, deadline: Instant) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = launches
            .iter()
            .map(|launch| scope.spawn(move || exchange(launch, round, &blob(round, launch.place.rank), deadline)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// All ranks meet, `n_rounds` times.
fn check(size: usize, meeting: &Meeting, secret: Option<&str>, n_rounds: u64) {
    let launches: Vec<Launch> = (0..size).map(|rank| launch(rank, size, meeting, secret)).collect();
    for round in 0..n_rounds {
        let expected: Vec<Vec<u8>> = (0..size).map(|rank| blob(round, rank)).collect();
        for outcome in meet(launches.clone(), round, soon()) {
            assert_eq!(outcome.unwrap(), expected);
        }
        for launch in &launches {
            leave(launch, round, soon()).unwrap();
        }
    }
}

fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[test]
fn alone_one_meets_oneself() {
    check(1, &Meeting::Alone, None, 2);
}

#[test]
fn at_a_server_of_upstreams_kind() {
    let server = Server::start(false);
    check(5, &server.meeting(), Some("s3"), 3);
    check(2, &server.meeting(), None, 1);
    assert_eq!(server.keys(), [""; 0], "everything is cleared away");
}

#[test]
fn at_a_server_that_keeps_connections_and_waits() {
    let server = Server::start(true);
    check(5, &server.meeting(), Some("s3"), 3);
    assert_eq!(server.keys(), [""; 0]);
    assert!(server.n_connections() <= 3 * 5 * 2, "{} connections for three rounds", server.n_connections());
}

#[test]
fn a_server_that_fails_is_asked_again() {
    let server = Server::start(true);
    server.fail_next(2);
    check(2, &server.meeting(), None, 1);
    server.fail_next(100);
    let outcome = exchange(&launch(0, 2, &server.meeting(), None), 7, b"", soon());
    let error = chain(&outcome.unwrap_err());
    assert!(error.contains("PUT /corro_7/0 was answered with status 500"), "{error}");
}

#[test]
fn who_is_missing_is_named_at_a_server_also_by_those_who_only_wait_for_rank_0() {
    for waits in [false, true] {
        let server = Server::start(waits);
        let launches = [0, 2].map(|rank| launch(rank, 4, &server.meeting(), None)).to_vec();
        for outcome in meet(launches, 0, shortly()) {
            let error = outcome.unwrap_err();
            assert!(matches!(&error, MeetError::Missing { ranks, .. } if ranks.0 == [1, 3]), "{error:?}");
        }
    }
}

#[test]
fn who_has_not_the_secret_is_named_at_a_server() {
    let server = Server::start(false);
    let launches = vec![launch(0, 2, &server.meeting(), Some("s3")), launch(1, 2, &server.meeting(), None)];
    let outcomes = meet(launches, 0, soon());
    assert!(matches!(outcomes[0], Err(MeetError::Unsigned { rank: 1 })), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(MeetError::WithoutSecret { rank: 0 })), "{outcomes:?}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let meeting = Meeting::KeyValue { addr: "127.0.0.1".to_owned(), port };
    let error = exchange(&launch(1, 2, &meeting, None), 0, b"", shortly()).unwrap_err();
    assert!(chain(&error).contains(&format!("key-value server at 127.0.0.1:{port}: no connection")), "{error:?}");
}

#[test]
fn at_rank_0_on_one_host() {
    check(2, &hosted(Host::Here), None, 20);
    check(16, &hosted(Host::Here), Some("s3"), 2);
}

#[test]
fn at_rank_0_by_address() {
    for address in ["127.0.0.1", "localhost"] {
        check(4, &hosted(Host::At(address.to_owned())), Some("s3"), 3);
    }
    check(3, &hosted(Host::Perhaps(vec!["127.0.0.1".to_owned()])), None, 1);
}

/// As under a Slurm whose nodes have addresses but no names: `srun` told `n[1-4]`, and nobody could resolve `n1`.
#[test]
fn at_rank_0_by_a_name_that_is_not_resolved() {
    // Refused before anybody is asked, so that the test waits for no name server.
    let meeting = hosted(Host::At("no..name".to_owned()));
    check(4, &meeting, Some("s3"), 2);
    let error = chain(&exchange(&launch(1, 2, &meeting, None), 0, b"", shortly()).unwrap_err());
    assert!(error.contains("the name no..name was not resolved: set MASTER_ADDR"), "{error}");
}

#[test]
fn over_tcp_when_the_socket_is_out_of_reach() {
    let Meeting::Hosted(here) = hosted(Host::At("127.0.0.1".to_owned())) else { unreachable!("it is hosted") };
    let spot = spot::Spot::of(&here, 0, 2);
    // Somebody is in our first port, and another visitor never says a word.
    let _stranger = TcpListener::bind(("127.0.0.1", spot.ports[0]));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host::receive_all(&spot, None, b"zero".to_vec(), soon()));
        let mut silent = Vec::new();
        let deadline = soon();
        let stream = loop {
            assert!(Instant::now() < deadline, "nobody listens");
            let reached = spot.ports[1..].iter().find_map(|port| TcpStream::connect(("127.0.0.1", *port)).ok());
            match reached {
                Some(stream) if silent.is_empty() => silent.push(stream),
                Some(stream) => break stream::Stream::from(stream),
                None => std::thread::yield_now(),
            }
        };
        crate::trust::prove(stream.until(soon()), None, &spot.context, crate::trust::Role::Dialer).unwrap();
        let all = guest::hand_over(&stream, 2, 1, b"one", soon()).unwrap();
        assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
        assert_eq!(host.join().unwrap().unwrap().0, all);
    });
}

#[test]
fn two_jobs_on_one_machine_do_not_meet() {
    let (one, other) = (hosted(Host::Here), hosted(Host::Here));
    let launches = vec![launch(0, 2, &one, None), launch(1, 2, &other, None)];
    let outcomes = meet(launches, 0, shortly());
    assert!(matches!(&outcomes[0], Err(MeetError::Missing { ranks, .. }) if ranks.0 == [1]), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(MeetError::NoHost { .. })), "{outcomes:?}");
}

#[test]
fn who_is_missing_at_rank_0_is_named_to_all() {
    let meeting = hosted(Host::Here);
    let launches = [0, 1, 3].map(|rank| launch(rank, 4, &meeting, None)).to_vec();
    let outcomes = meet(launches, 0, shortly());
    assert!(matches!(&outcomes[0], Err(MeetError::Missing { ranks, .. }) if ranks.0 == [2]), "{outcomes:?}");
    for outcome in &outcomes[1..] {
        let error = outcome.as_ref().unwrap_err().to_string();
        assert!(error.contains("rank 2 did not come to the meeting"), "{error}");
    }
}

#[test]
fn who_has_another_secret_does_not_get_in() {
    let meeting = hosted(Host::Here);
    let outcomes = meet(vec![launch(0, 2, &meeting, Some("a")), launch(1, 2, &meeting, Some("b"))], 0, shortly());
    for outcome in outcomes {
        let error = chain(&outcome.unwrap_err());
        assert!(error.contains("the peer does not know the job's secret"), "{error}");
    }
}

/// A connection on which everything but the blob is said.
fn proven(spot: &spot::Spot) -> stream::Stream {
    let deadline = soon();
    let stream = loop {
        assert!(Instant::now() < deadline, "nobody listens");
        match UnixStream::connect_addr(&spot.unix().unwrap()) {
            Ok(stream) => break stream::Stream::from(stream),
            Err(_) => std::thread::yield_now(),
        }
    };
    crate::trust::prove(stream.until(soon()), None, &spot.context, crate::trust::Role::Dialer).unwrap();
    stream
}

#[test]
fn who_does_not_belong_is_refused_and_the_meeting_goes_on() {
    let Meeting::Hosted(here) = hosted(Host::Here) else { unreachable!("it is hosted") };
    let spot = spot::Spot::of(&here, 0, 2);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host::receive_all(&spot, None, b"zero".to_vec(), soon()));
        for (rank, size, expected) in [
            (
                1,
                3,
                "another world of 2 ranks meets at the job's socket on this host, and this process is rank 1 of a world of 3",
            ),
            (2, 2, "rank 2 is out of range in a world of 2"),
            (0, 2, "a world of 2 ranks already meets at the job's socket on this host"),
        ] {
            let error = guest::hand_over(&proven(&spot), size, rank, b"x", soon()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (all, _member) = guest::attend(&spot, 1, None, b"one", soon()).unwrap();
        assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
        assert_eq!(host.join().unwrap().unwrap().0, all);
    });
}

#[test]
fn a_second_rank_0_is_told_that_the_place_is_taken() {
    let meeting = hosted(Host::Here);
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..2).map(|_| scope.spawn(|| exchange(&launch(0, 2, &meeting, None), 0, &blob(0, 0), soon()))).collect();
        until_refused(&ranks);
        exchange(&launch(1, 2, &meeting, None), 0, &blob(0, 1), soon()).unwrap();
        let outcomes: Vec<Outcome> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        let refused: Vec<String> =
            outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(|e| chain(e)).collect();
        assert!(refused.len() == 1 && refused[0].contains("choose another MASTER_PORT"), "{outcomes:?}");
    });
}

fn until_refused(ranks: &[std::thread::ScopedJoinHandle<'_, Outcome>]) {
    let deadline = soon();
    while !ranks.iter().any(|rank| rank.is_finished()) {
        assert!(Instant::now() < deadline, "none of them is refused");
        std::thread::yield_now();
    }
}

#[test]
fn who_leaves_before_all_have_come_is_named_to_all() {
    for _ in 0..100 {
        let Meeting::Hosted(here) = hosted(Host::Here) else { unreachable!("it is hosted") };
        let spot = spot::Spot::of(&here, 0, 4);
        let all_told = std::thread::scope(|scope| {
            let host = scope.spawn(|| host::receive_all(&spot, None, Vec::new(), soon()));
            let waiting = scope.spawn(|| guest::attend(&spot, 1, None, b"one", shortly()));
            let leaving = guest::hand_over(&proven(&spot), 4, 3, b"three", Instant::now() + Duration::from_millis(50));
            assert!(matches!(leaving, Err(MeetError::HostLost(_))), "{leaving:?}");
            let error = host.join().unwrap().err().expect("rank 3 has left");
            let MeetError::Left { rank: 3, missing } = &error else { panic!("{error:?}") };
            let told = waiting.join().unwrap().err().expect("rank 3 has left").to_string();
            // It may have come too late to be told.
            missing.0 == [2] && told.contains("rank 3 ended, or gave up, before rank 2 had joined")
        });
        if all_told {
            return;
        }
    }
    panic!("rank 1 was never told");
}

#[test]
fn who_failed_is_named_at_a_server_at_once() {
    let server = Server::start(true);
    let (addr, port) = match server.meeting() {
        Meeting::KeyValue { addr, port } => (addr, port),
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        let meeting = &server.meeting();
        let ranks = [0, 1].map(|rank| {
            let launch = launch(rank, 3, meeting, None);
            scope.spawn(move || exchange(&launch, 0, b"", soon()))
        });
        let mut launcher = client::Client::new(&addr, port);
        launcher.put("/corro_0/failed", b"2 rank 2 on host n1 ended with exit code 1", soon()).unwrap();
        for rank in ranks {
            let error = rank.join().unwrap().unwrap_err();
            assert!(matches!(&error, MeetError::PeerFailed { .. }), "{error:?}");
            assert!(error.to_string().contains("rank 2 on host n1 ended with exit code 1"), "{error}");
        }
    });
}

#[test]
fn rank_0_notices_that_it_is_not_where_the_launcher_is() {
    let meeting = hosted(Host::Perhaps(vec!["192.0.2.77".to_owned()]));
    let error = exchange(&launch(0, 2, &meeting, None), 0, b"", soon()).unwrap_err().to_string();
    assert!(error.contains("set MASTER_ADDR"), "{error}");
}

#[test]
fn ranks_are_listed_as_people_do() {
    assert_eq!(Ranks(vec![3]).to_string(), "rank 3");
    assert_eq!(Ranks(vec![1, 2]).to_string(), "ranks 1, 2");
    assert!(Ranks((0..20).collect()).to_string().ends_with("14, 15 and 4 more"));
}
