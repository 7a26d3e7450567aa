//! A process that joins and leaves a thousand worlds has as many files, threads and memory as after a few.

mod ranks;

use std::fs;
use std::sync::Barrier;
use std::time::Instant;

use corro_collectives::engine::ops::Reduce;
use corro_collectives::settings::Settings;
use corro_collectives::{Engine, Options, ReduceOp, Transport, World};
use ranks::launch;

const N_ROUNDS: u64 = 1000;
/// By then everything that is kept for good is there.
const SETTLED: u64 = 200;

#[derive(Debug)]
struct Held {
    n_files: usize,
    n_threads: usize,
    resident: usize,
    mapped: usize,
}

impl Held {
    fn now() -> Held {
        let count = |folder: &str| fs::read_dir(folder).expect("a process sees itself").count();
        let status = fs::read_to_string("/proc/self/status").expect("a process sees itself");
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says");
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
        };
        Held {
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
fn nothing_grows_over_a_thousand_rounds() {
    let identity = format!("rounds {}", std::process::id());
    let settings = Settings::from_variables(|_| None).expect("good settings");
    // Everybody is out of a round, and the last threads of it have ended, when what is held is counted.
    let together = Barrier::new(2);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (identity, settings, together) = (&identity, &settings, &together);
            scope.spawn(move || {
                let mut settled = None;
                for round in 1..=N_ROUNDS {
                    one_round(rank, identity, round, settings);
                    if round != SETTLED && round != N_ROUNDS {
                        continue;
                    }
                    together.wait();
                    if rank == 0 {
                        let held = Held::now();
                        println!("after {round} rounds, {:.1?}: {held:?}", began.elapsed());
                        let settled = settled.get_or_insert(Held::now());
                        assert!(held.n_files <= settled.n_files + 4, "{settled:?} became {held:?}");
                        assert!(held.n_threads <= settled.n_threads + 2, "{settled:?} became {held:?}");
                        assert!(held.resident <= settled.resident + 40, "{settled:?} became {held:?}");
                        assert!(held.mapped <= settled.mapped + 300, "{settled:?} became {held:?}");
                    }
                    together.wait();
                }
            });
        }
    });
}
