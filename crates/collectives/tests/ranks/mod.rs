//! Ranks as threads of one process: everything but the processes is real. Each test meets at a place of its own.
#![allow(dead_code, reason = "each test executable uses its own part")]

pub mod training;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corro_collectives::bootstrap::place::{Host, Hosted, Launch, Meeting, Place};
use corro_collectives::{Options, World};

pub fn launch(rank: usize, size: usize, identity: &str) -> Launch {
    let place = Place { rank, size, hostname: format!("host{rank}"), ..Place::alone() };
    let meeting = match size {
        1 => Meeting::Alone,
        _ => Meeting::Hosted(Hosted { identity: identity.to_owned(), host: Host::Here, kin: None, names_run: true }),
    };
    let place = Place { local_known: false, cross_known: false, ..place };
    Launch { place, meeting, secret: None, interface: None, ports: None, timeout: Duration::from_secs(60) }
}

/// Runs `body` on `n` ranks and returns what each made.
pub fn on_ranks<R: Send>(n: usize, options: &Options, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    static TESTS: AtomicU64 = AtomicU64::new(0);
    let round = TESTS.fetch_add(1, Ordering::Relaxed);
    let identity = format!("test {} {round}", std::process::id());
    std::thread::scope(|scope| {
        let rank = |rank| {
            let (identity, body) = (&identity, &body);
            scope.spawn(move || {
                let world = World::connect_round(&launch(rank, n, identity), options, round);
                body(world.expect("the ranks find each other"))
            })
        };
        let threads: Vec<_> = (0..n).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}
