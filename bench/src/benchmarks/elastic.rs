//! Death of one of 4 ranks to the next step of the survivors, a new rank to its first step, and the cost of a step, with torchrun as peer.
//!
//! Our ranks run under `corro run --min-np 1 --max-np 4` and sum a gradient of 1 MB with the engine. A rank is killed with SIGKILL, each in turn; the
//! launcher starts another. The peer restarts all its ranks. The cost of a step is compared between a training of fixed size and an elastic one
//! that take turns.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Scale, Verdict};
use crate::elastic::gang::{Gang, Recovery, event_log};
use crate::elastic::worker;
use crate::goal::Goal;
use crate::peers::torch;
use crate::site::corro_binary;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "at most 300 ms from a rank's death to the survivors' next step, 1 s from a new rank to its first, steps within 1 %";

const N_RANKS: usize = 4;
const RECOVERY_GOAL_MS: f64 = 300.0;
const JOIN_GOAL_MS: f64 = 1000.0;
/// Allowed additional time of a step.
const STEP_GOAL: f64 = 0.01;
const PEER_PROGRAM: &str = include_str!("../peers/elastic_torch.py");

pub fn run(scale: Scale) -> Result<Verdict> {
    let directory = tempfile::Builder::new().prefix("corro-bench-elastic-").tempdir()?;
    let (recovery, join) = measure_ours(directory.path(), scale.pick(8, 40))?;
    let paces = measure_steps(directory.path(), scale.pick(5, 20), scale.pick(5, 20))?;
    let peer = measure_peer(directory.path(), scale.pick(2, 8));
    println!();
    print_heading();
    [&recovery, &join, &paces.fixed, &paces.elastic, &paces.ratios].into_iter().for_each(Samples::print_row);
    match &peer {
        Ok((version, samples)) => {
            samples.print_row();
            let ratio = samples.p50() / recovery.p50();
            println!("peer: torchrun of torch {version} restarts all ranks: {ratio:.0} times as long");
        }
        Err(error) => println!("peer: no torchrun: {error:#}"),
    }
    let cost = paces.ratios.p50() - 1.0;
    let goals = [
        at_most("ms from a death to the survivors' step", recovery.p50(), RECOVERY_GOAL_MS),
        at_most("ms from a new rank to its first step", join.p50(), JOIN_GOAL_MS),
        Goal {
            met: cost <= STEP_GOAL,
            figures: format!(
                "{:+.1} % time of an elastic step (goal: at most +{:.0} %)",
                100.0 * cost,
                100.0 * STEP_GOAL
            ),
        },
    ];
    println!();
    goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
    let figures: Vec<&str> = goals.iter().map(|goal| goal.figures.as_str()).collect();
    Ok(Verdict { met: goals.iter().all(|goal| goal.met), figures: figures.join("; ") })
}

fn at_most(quantity: &str, p50: f64, goal: f64) -> Goal {
    Goal { met: p50 <= goal, figures: format!("p50 {p50:.0} {quantity} (goal: at most {goal:.0})") }
}

fn measure_ours(directory: &Path, n_deaths: usize) -> Result<(Samples, Samples)> {
    let log = event_log(directory, "ours");
    let mut gang = Gang::start(our_command(&["--min-np", "1", "--max-np"], directory, "ours")?, log, N_RANKS)?;
    let mut members = gang.wait_for_all(None)?;
    let mut recovery = Samples::new("death to the survivors' step", "ms");
    let mut join = Samples::new("new rank, imported, to its first step", "ms");
    for death in 0..n_deaths {
        let (Recovery { first_step, join: joined }, whole) = gang.kill_rank(death % N_RANKS, &members)?;
        recovery.add(first_step);
        joined.into_iter().for_each(|joined| join.add(joined));
        members = whole;
    }
    gang.finish()?;
    Ok((recovery, join))
}

struct Paces {
    fixed: Samples,
    elastic: Samples,
    /// Elastic by fixed, within a round.
    ratios: Samples,
}

fn measure_steps(directory: &Path, n_rounds: usize, n_paces: usize) -> Result<Paces> {
    let mut paces = Paces {
        fixed: Samples::new("step of a training of fixed size", "µs"),
        elastic: Samples::new("step of an elastic training", "µs"),
        ratios: Samples::new("elastic by fixed, in the same round", "times"),
    };
    for round in 0..n_rounds {
        let measure = |options: &[&str], name: &str| {
            let name = format!("{name}-{round}");
            let command = our_command(options, directory, &name)?;
            let mut gang = Gang::start(command, event_log(directory, &name), N_RANKS)?;
            let pace = gang.pace(n_paces)?;
            gang.finish().map(|()| pace)
        };
        let fixed = measure(&["-n"], "fixed")?;
        let elastic = measure(&["--min-np", "1", "--max-np"], "elastic")?;
        paces.fixed.add(fixed);
        paces.elastic.add(elastic);
        paces.ratios.add(elastic / fixed);
    }
    Ok(paces)
}

/// `corro run` with options whose last one takes the number of ranks.
fn our_command(options: &[&str], directory: &Path, name: &str) -> Result<Command> {
    let mut command = Command::new(corro_binary()?);
    command.arg("run").args(options).arg(N_RANKS.to_string()).arg(std::env::current_exe()?);
    command.arg(worker::SUBCOMMAND).arg(event_log(directory, name).0).current_dir(directory);
    Ok(command)
}

/// torchrun, with a monitor interval far below its default of 5 s.
fn measure_peer(directory: &Path, n_deaths: usize) -> Result<(String, Samples)> {
    let (python, version) = torch::installed()?;
    let script = directory.join("elastic_torch.py");
    std::fs::write(&script, PEER_PROGRAM)?;
    let log = event_log(directory, "torchrun");
    let mut command = Command::new(python);
    command.args([
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--monitor_interval",
        "0.1",
        "--max_restarts",
        "1000",
    ]);
    command.arg("--nproc_per_node").arg(N_RANKS.to_string()).arg(script).arg(&log.0).current_dir(directory);
    command.env("OMP_NUM_THREADS", "1");
    let mut gang = Gang::start(command, log, N_RANKS)?;
    let mut members = gang.wait_for_all(None)?;
    let mut samples = Samples::new("torchrun: death to the step of all ranks", "ms");
    for death in 0..n_deaths {
        let (recovery, whole) = gang.kill_rank(death % N_RANKS, &members)?;
        samples.add(recovery.first_step);
        members = whole;
    }
    Ok((version, samples))
}
