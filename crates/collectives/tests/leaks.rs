//! Leak test: a process that connects and disconnects a thousand times does not accumulate file descriptors, threads or memory.

mod ranks;

use std::fs;
use std::sync::Barrier;
use std::time::Instant;

use corro_collectives::engine::ops::Reduce;
use corro_collectives::settings::Settings;
use corro_collectives::{Engine, Options, ReduceOp, Transport, World};
use ranks::launch;

const N_ROUNDS: u64 = 1000;
/// Round after which permanent allocations exist and the baseline is measured.
const BASELINE_ROUND: u64 = 200;

/// Resources of this process; memory in MiB.
#[derive(Debug)]
struct ResourceUsage {
    n_files: usize,
    n_threads: usize,
    resident: usize,
    mapped: usize,
}

impl ResourceUsage {
    fn now() -> ResourceUsage {
        let count = |folder: &str| fs::read_dir(folder).expect("/proc/self is readable").count();
        let status = fs::read_to_string("/proc/self/status").expect("/proc/self is readable");
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
        };
        ResourceUsage {
            n_files: count("/proc/self/fd"),
            n_threads: count("/proc/self/task"),
            resident: kilobytes("VmRSS") / 1024,
            mapped: kilobytes("VmSize") / 1024,
        }
    }
}

fn one_round(rank: usize, identity: &str, round: u64, settings: &Settings) {
    let transport = if round.is_multiple_of(4) { Transport::Tcp } else { Transport::Auto };
    let options = Options { transport, ..Options::DEFAULT };
    let world = World::connect_round(&launch(rank, 2, identity), &options, round).expect("the ranks find each other");
    let mut data = vec![1.0f32; 100_000];
    if round.is_multiple_of(2) {
        let mut communicator = world.communicator().expect("a communicator");
        communicator.allreduce(&mut data, ReduceOp::Sum).expect("a sum");
    } else {
        let engine = Engine::in_world(world, settings).expect("an engine");
        engine.allreduce("data", &mut data, Reduce::SUM).expect("a sum");
    }
    assert_eq!((data[0], data[99_999]), (2.0, 2.0));
}

#[test]
fn resources_do_not_grow_over_a_thousand_rounds() {
    let identity = format!("rounds {}", std::process::id());
    let settings = Settings::from_variables(|_| None).expect("good settings");
    // Resources are measured between two barriers, when both ranks have left the round and its threads have ended.
    let barrier = Barrier::new(2);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (identity, settings, barrier) = (&identity, &settings, &barrier);
            scope.spawn(move || {
                let mut baseline = None;
                for round in 1..=N_ROUNDS {
                    one_round(rank, identity, round, settings);
                    if round != BASELINE_ROUND && round != N_ROUNDS {
                        continue;
                    }
                    barrier.wait();
                    if rank == 0 {
                        let usage = ResourceUsage::now();
                        println!("after {round} rounds, {:.1?}: {usage:?}", began.elapsed());
                        let baseline = baseline.get_or_insert(ResourceUsage::now());
                        assert!(usage.n_files <= baseline.n_files + 4, "{baseline:?} became {usage:?}");
                        assert!(usage.n_threads <= baseline.n_threads + 2, "{baseline:?} became {usage:?}");
                        assert!(usage.resident <= baseline.resident + 40, "{baseline:?} became {usage:?}");
                        assert!(usage.mapped <= baseline.mapped + 300, "{baseline:?} became {usage:?}");
                    }
                    barrier.wait();
                }
            });
        }
    });
}
