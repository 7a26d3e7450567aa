//! Ranks as threads of one process, which connect as processes do. Each test has a job id of its own.
#![allow(dead_code, reason = "each test executable uses its own part")]

pub mod training;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::bootstrap::rank_info::RankInfo;
use corro_collectives::bootstrap::rendezvous_method::{Rank0Host, Rank0Rendezvous, RendezvousMethod};
use corro_collectives::{Options, World};

pub fn launch(rank: usize, size: usize, job_id: &str) -> Launch {
    let rank_info = RankInfo { rank, size, hostname: format!("host{rank}"), ..RankInfo::single() };
    let rank0 = Rank0Rendezvous {
        job_id: job_id.to_owned(),
        host: Rank0Host::SameHost,
        launcher_socket: None,
        has_unique_id: true,
    };
    let rendezvous = match size {
        1 => RendezvousMethod::SingleProcess,
        _ => RendezvousMethod::Rank0(rank0),
    };
    let rank_info = RankInfo { local_known: false, cross_known: false, ..rank_info };
    Launch { rank_info, rendezvous, secret: None, interface: None, ports: None, timeout: Duration::from_secs(60) }
}

/// Runs `body` on `n` ranks and returns the result of each.
pub fn on_ranks<R: Send>(n: usize, options: &Options, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    static TESTS: AtomicU64 = AtomicU64::new(0);
    let round = TESTS.fetch_add(1, Ordering::Relaxed);
    let job_id = format!("test {} {round}", std::process::id());
    std::thread::scope(|scope| {
        let rank = |rank| {
            let (job_id, body) = (&job_id, &body);
            scope.spawn(move || {
                let world = World::connect_round(&launch(rank, n, job_id), options, round);
                body(world.expect("the ranks connect"))
            })
        };
        let threads: Vec<_> = (0..n).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}
