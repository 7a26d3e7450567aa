//! The contract between launcher and engine: the engine reads the variables that the launcher sets, and its ranks join a rendezvous at the
//! launcher's server.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::bootstrap::rendezvous::error::RendezvousError;
use corro_collectives::bootstrap::rendezvous::{clean_up, exchange};
use corro_collectives::bootstrap::rendezvous_method::RendezvousMethod;
use corro_collectives::{Engine, Reduce};
use corro_launch::environment::{GangContext, for_rank};
use corro_launch::gang::{self, GangSpec};
use corro_launch::rank_assignment::{Host, assign_ranks};
use corro_launch::rendezvous::{Rendezvous, known_scopes};

fn hosts() -> Vec<Host> {
    vec![Host { name: "a".into(), slots: 3 }, Host { name: "b".into(), slots: 1 }]
}

async fn server() -> Rendezvous {
    let known = known_scopes(&hosts(), &assign_ranks(&hosts()));
    Rendezvous::start(([127, 0, 0, 1], 0).into(), known).await.expect("loopback can be listened on")
}

/// The launch parameters that the engine reads from the variables of every rank.
fn launches(server: &Rendezvous) -> Vec<Launch> {
    let gang = GangContext {
        rendezvous_addr: server.addr().ip().to_string(),
        rendezvous_port: server.addr().port(),
        iface: Some("lo".into()),
        master_addr: "127.0.0.1".into(),
        master_port: 1,
        secret: "s3".into(),
    };
    let environments =
        assign_ranks(&hosts()).into_iter().map(|rank| for_rank(&gang, &rank, &hosts()[rank.host_idx].name));
    environments
        .map(|variables: BTreeMap<String, String>| {
            Launch::from_variables(|name| variables.get(name).cloned()).expect("the launcher tells it right")
        })
        .collect()
}

type Outcome = Result<Vec<Vec<u8>>, RendezvousError>;

/// Runs the rendezvous of each rank in a thread, since the engine blocks.
async fn exchange_all(launches: &[Launch], round: u64, deadline: Instant) -> Vec<Outcome> {
    let ranks: Vec<_> = launches
        .iter()
        .cloned()
        .map(|launch| {
            let blob = format!("rank {} round {round}", launch.rank_info.rank);
            tokio::task::spawn_blocking(move || exchange(&launch, round, blob.as_bytes(), deadline))
        })
        .collect();
    let mut outcomes = Vec::new();
    for rank in ranks {
        outcomes.push(rank.await.expect("no rank panics"));
    }
    outcomes
}

#[tokio::test]
async fn a_rank_reads_its_numbers_from_the_environment() {
    let server = server().await;
    let launches = launches(&server);
    let numbers: Vec<[usize; 6]> = launches
        .iter()
        .map(|Launch { rank_info: p, .. }| {
            assert!(p.local_known && p.cross_known);
            [p.rank, p.size, p.local_rank, p.local_size, p.cross_rank, p.cross_size]
        })
        .collect();
    assert_eq!(numbers, [[0, 4, 0, 3, 0, 2], [1, 4, 1, 3, 0, 1], [2, 4, 2, 3, 0, 1], [3, 4, 0, 1, 1, 2]]);
    let port = server.addr().port();
    for launch in &launches {
        assert_eq!(launch.rendezvous, RendezvousMethod::KeyValue { addr: "127.0.0.1".into(), port });
        assert_eq!(launch.interface.as_deref(), Some("lo"));
        assert!(launch.secret.is_some());
    }
    assert_eq!(launches[3].rank_info.hostname, "b");
}

#[tokio::test]
async fn repeated_rendezvous_at_the_launchers_server_succeed() {
    let server = server().await;
    let launches = launches(&server);
    let deadline = Instant::now() + Duration::from_secs(60);
    for round in 0..10 {
        let expected: Vec<Vec<u8>> = (0..4).map(|rank| format!("rank {rank} round {round}").into_bytes()).collect();
        for outcome in exchange_all(&launches, round, deadline).await {
            assert_eq!(outcome.expect("all come"), expected);
        }
        let done = Arc::new(launches.clone());
        tokio::task::spawn_blocking(move || done.iter().try_for_each(|launch| clean_up(launch, round, deadline)))
            .await
            .expect("no rank panics")
            .expect("the server takes the keys back");
    }
    // Keys that a round had left behind would be found by a repeated round.
    let outcomes = exchange_all(&launches[1..], 0, Instant::now() + Duration::from_secs(2)).await;
    for outcome in outcomes {
        let error = outcome.expect_err("rank 0 is not there");
        assert!(matches!(&error, RendezvousError::Missing { ranks, .. } if ranks.0 == [0]), "{error:?}");
    }
}

#[test]
#[ignore = "started by the test below as a rank"]
fn a_rank() {
    let engine = Engine::start().expect("the ranks find each other");
    let mut sum = vec![1.0f32; 100_000];
    engine.allreduce("ones", &mut sum, Reduce::SUM).expect("a sum");
    let place = engine.rank_info();
    assert_eq!((place.local_rank, place.local_size), (place.rank, place.size));
    eprintln!("rank {} of {}: {}", place.rank, place.size, sum[99_999]);
}

#[tokio::test]
async fn a_gang_of_engines_computes() {
    let test = std::env::current_exe().expect("a test has a file").to_string_lossy().into_owned();
    let arguments = ["--ignored", "--exact", "a_rank", "--nocapture"].map(String::from);
    let spec = GangSpec {
        argv: std::iter::once(test).chain(arguments).collect(),
        env: common::path_only(),
        cwd: std::env::temp_dir(),
        hosts: vec![Host { name: "localhost".into(), slots: 2 }],
        prefix: false,
        output_dir: None,
        grace: Duration::from_secs(5),
        find_cause: |_| None,
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = GangSpec { output_dir: Some(folder.path().join("logs")), ..spec };
    let stops = tokio::sync::mpsc::channel(1).1;
    let launcher = common::launcher();
    let running = gang::run(&launcher, &spec, stops, std::io::sink(), std::io::sink());
    let outcome = tokio::time::timeout(common::DEADLINE, running).await.expect("the gang ends in time");
    assert_eq!(outcome.expect("the gang can be run"), gang::Outcome::Succeeded);
    for rank in 0..2 {
        let said = std::fs::read_to_string(folder.path().join(format!("logs/rank.{rank}/stderr"))).expect("kept");
        assert!(said.contains(&format!("rank {rank} of 2: 2")), "{said}");
    }
}
