//! Deterministic simulation of a whole cluster in one thread and virtual time: the server's pass, its planner and state
//! machines and the agents' decisions are the real code; disks, network, clocks and processes are modelled, and fail at random.
//! Thousands of runs, each from one seed, each checked against the invariants in `laws`.
//!
//! `CORRO_SIM_RUNS` sets the number of runs (a few hundred without optimisation, thousands with); `CORRO_SIM_SEED` runs one
//! seed and prints its events.

#[path = "simulation/body.rs"]
mod body;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/laws.rs"]
mod laws;
#[path = "simulation/lives.rs"]
mod lives;
#[path = "simulation/passes.rs"]
mod passes;
#[path = "simulation/people.rs"]
mod people;
#[path = "simulation/server.rs"]
mod server;
#[path = "simulation/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Tally, World};

#[test]
fn the_laws_hold_whatever_fails() {
    if let Some(seed) = number("CORRO_SIM_SEED") {
        println!("{}", World::new(seed, true).run());
        return;
    }
    let runs = number("CORRO_SIM_RUNS").unwrap_or(if cfg!(debug_assertions) { 200 } else { 10_000 });
    let first = number("CORRO_SIM_FIRST").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |which: u64| (first..first + runs).filter(move |seed| seed % threads == which);
    let tally = std::thread::scope(|scope| {
        let hands: Vec<_> = (0..threads).map(|which| scope.spawn(move || run_all(share(which)))).collect();
        hands.into_iter().map(|hand| hand.join().expect("failures are told")).sum::<Tally>()
    });
    println!("{runs} runs: {tally}");
    // Guards against runs in which too little happens to prove anything.
    assert!(tally.succeeded > runs && tally.requeued > runs / 10 && tally.nodes_lost > runs / 10, "{tally}");
    assert!(tally.preempted > runs / 20, "{tally}");
    assert!(tally.restarts > runs / 10 && tally.narrow > runs, "{tally}");
}

fn run_all(seeds: impl Iterator<Item = u64>) -> Tally {
    let run = |seed| {
        catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run()))
            .unwrap_or_else(|_| panic!("a law was broken; the story: CORRO_SIM_SEED={seed} with --nocapture"))
    };
    seeds.map(run).sum()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}")))
}
