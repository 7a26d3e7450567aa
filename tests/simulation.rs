//! Deterministic simulation of a whole cluster in one thread and virtual time: the server's pass, its planner and state
//! machines and the agents' decisions are the real code; disks, network, clocks and processes are modelled, and fail at random.
//! Thousands of runs, each from one seed, each checked against the rules in `invariants`.
//!
//! `CORRO_SIM_RUNS` sets the number of runs (a few hundred without optimisation, thousands with); `CORRO_SIM_SEED` runs one
//! seed and prints its events.

#[path = "simulation/agent.rs"]
mod agent;
#[path = "simulation/agent_lifecycle.rs"]
mod agent_lifecycle;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/invariants.rs"]
mod invariants;
#[path = "simulation/passes.rs"]
mod passes;
#[path = "simulation/server.rs"]
mod server;
#[path = "simulation/tasks.rs"]
mod tasks;
#[path = "simulation/users.rs"]
mod users;
#[path = "simulation/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Stats, World};

#[test]
fn invariants_hold_under_random_faults() {
    if let Some(seed) = number("CORRO_SIM_SEED") {
        println!("{}", World::new(seed, true).run());
        return;
    }
    let runs = number("CORRO_SIM_RUNS").unwrap_or(if cfg!(debug_assertions) { 200 } else { 10_000 });
    let first = number("CORRO_SIM_FIRST").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |which: u64| (first..first + runs).filter(move |seed| seed % threads == which);
    let stats = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|which| scope.spawn(move || run_all(share(which)))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no run failed")).sum::<Stats>()
    });
    println!("{runs} runs: {stats}");
    // Guards against runs in which too little happens to prove anything.
    assert!(stats.succeeded > runs && stats.requeued > runs / 10 && stats.nodes_lost > runs / 10, "{stats}");
    assert!(stats.preempted > runs / 20, "{stats}");
    assert!(stats.retried > runs / 20 && stats.dependents > runs / 10, "{stats}");
    assert!(stats.restarts > runs / 10 && stats.incremental > runs, "{stats}");
}

fn run_all(seeds: impl Iterator<Item = u64>) -> Stats {
    let run = |seed| {
        catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())).unwrap_or_else(|_| {
            panic!("an invariant was violated; to print its events: CORRO_SIM_SEED={seed} with --nocapture")
        })
    };
    seeds.map(run).sum()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}")))
}
