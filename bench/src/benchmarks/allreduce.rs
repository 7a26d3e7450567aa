//! Allreduce latency and bandwidth, 4 B to 256 MB, on one and several hosts, against Open MPI, MPICH, Gloo and Horovod.
//!
//! Every engine sums the same numbers in place with ranks that are processes, and its rank 0 reports the time of a call; all
//! measure the same way (`allreduce::worker`). Engines take turns at each placement, so that other load on the machine affects
//! all alike. The limits are measured in the same run: memory copies within a host, iperf3 between hosts.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Scale, Verdict};
use crate::allreduce::cases::{self, Case, Measured};
use crate::allreduce::goals::{self, Limits};
use crate::allreduce::hosts::Hosts;
use crate::allreduce::options::{self, Options};
use crate::allreduce::place::Place;
use crate::allreduce::table::{OURS, Results};
use crate::allreduce::{copy, gang, kernels, tcp, worker};
use crate::peers::mpi::{Flavour, Mpi};
use crate::peers::torch::Torch;

pub const PROMISE: &str =
    "the direct door at least as fast as the fastest peer everywhere, 2 times Gloo from 1 MB up; five more goals";
/// MPICH, the one engine without an oversubscription mode: with more ranks than cores a call takes a time slice of the
/// scheduler.
const SPINS: &str = "mpich";
/// Gloo comes with all of PyTorch.
const IMPORTS: &str = "gloo";
const HOSTS: usize = 4;
const LARGE: usize = 64 << 20;
/// Rate of a usual network link.
const CABLE: &str = "1gbit";

pub fn run(scale: Scale, words: &[String]) -> Result<Verdict> {
    let options = options::parse(words)?;
    let directory = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let (engines, missing) = engines(&options, directory.path());
    let mut bench =
        Bench { scale, options, engines, results: Results::default(), limits: Limits::default(), broken: missing };
    if bench.options.limits {
        bench.copying();
        kernels::print(Duration::from_millis(scale.pick(1, 20)));
    }
    let sweep = bench.sweep();
    for ranks in bench.options.ranks.clone() {
        bench.measure(Place::Here(ranks), &sweep, &[]);
    }
    if bench.options.hosts {
        match Hosts::make(HOSTS) {
            Ok(hosts) => bench.between(&hosts, &sweep)?,
            Err(error) => bench.miss(format!("nothing between hosts: {error:#}")),
        }
    }
    bench.end()
}

type Measure = dyn Fn(Place<'_>, &[Case], Duration) -> Result<Vec<Measured>>;

/// An engine that sums over ranks.
struct Engine {
    name: &'static str,
    run: Box<Measure>,
}

/// Our engine and the requested peers that are installed; and the missing ones.
fn engines(options: &Options, directory: &std::path::Path) -> (Vec<Engine>, Vec<String>) {
    let (mut engines, mut missing) = (vec![Engine { name: OURS, run: Box::new(run_ours) }], Vec::new());
    let prebuilt = options.prebuilt.as_deref();
    for name in options::PEERS.into_iter().filter(|name| options.peers.iter().any(|peer| peer == name)) {
        let prepared = match name {
            "openmpi" => Mpi::prepare(Flavour::OpenMpi, directory, prebuilt).map(|mpi| from_mpi(name, mpi)),
            "mpich" => Mpi::prepare(Flavour::Mpich, directory, prebuilt).map(|mpi| from_mpi(name, mpi)),
            "gloo" => Torch::gloo(directory).map(|torch| from_torch(name, torch)),
            _ => Torch::horovod(directory).map(|torch| from_torch(name, torch)),
        };
        match prepared {
            Ok((engine, version)) => {
                println!("peer: {name} {version}");
                engines.push(engine);
            }
            Err(error) => {
                println!("peer: no {name}: {error:#}");
                // Building Horovod is optional.
                if name != "horovod" {
                    missing.push(format!("no {name}"));
                }
            }
        }
    }
    (engines, missing)
}

fn from_mpi(name: &'static str, mpi: Mpi) -> (Engine, String) {
    let version = mpi.version.clone();
    (Engine { name, run: Box::new(move |at, cases, limit| mpi.run(at, cases, limit)) }, version)
}

fn from_torch(name: &'static str, torch: Torch) -> (Engine, String) {
    let version = if name == "gloo" { format!("of torch {}", torch.version) } else { torch.version.clone() };
    (Engine { name, run: Box::new(move |at, cases, limit| torch.run(at, cases, limit)) }, version)
}

/// Two API variants, and so twice the time.
fn run_ours(at: Place<'_>, cases: &[Case], limit: Duration) -> Result<Vec<Measured>> {
    let mut words = vec![worker::WORD.to_owned()];
    words.extend(cases.iter().map(Case::word));
    cases::read(&gang::run(at, &std::env::current_exe()?, &words, 2 * limit)?, cases)
}

struct Bench {
    scale: Scale,
    options: Options,
    engines: Vec<Engine>,
    results: Results,
    limits: Limits,
    /// Failed measurements; any of them makes the verdict `missed`.
    broken: Vec<String>,
}

impl Bench {
    fn sweep(&self) -> Vec<Case> {
        let budget = self.budget();
        let sizes = self.options.sizes.clone().unwrap_or_else(|| cases::sizes(self.scale));
        let mut sweep: Vec<Case> = sizes.into_iter().map(|bytes| Case::of_bytes(bytes, budget)).collect();
        if self.options.sizes.is_none() {
            sweep.push(Case::step(budget));
        }
        sweep
    }

    /// Microseconds for one case, engine and round.
    fn budget(&self) -> usize {
        1000 * self.options.budget_ms.unwrap_or(self.scale.pick(12, 200))
    }

    /// Measures the engines that are not in `without`, in turns, and prints the table.
    fn measure(&mut self, at: Place<'_>, cases: &[Case], without: &[&'static str]) {
        let limit = Duration::from_secs(self.scale.pick(4, 90));
        let mut out = without.to_vec();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Combinations that would take a quick run beyond its minute where ranks share cores.
        let slow = [
            (SPINS, at.ranks() > cores, "it does not yield"),
            (IMPORTS, at.ranks() > cores && matches!(at, Place::Here(_)), "its ranks take seconds to start"),
        ];
        for (name, _, why) in slow.into_iter().filter(|(_, applies, _)| *applies && self.scale == Scale::Quick) {
            if self.peers().contains(&name) && !out.contains(&name) {
                println!("{name} with {}: left out of a quick run: {why}, and there are {cores} cores", at.name());
                out.push(name);
            }
        }
        for round in 0..self.options.rounds.unwrap_or(self.scale.pick(1, 3)) {
            for engine in &self.engines {
                if out.contains(&engine.name) {
                    continue;
                }
                match (engine.run)(at, cases, limit) {
                    Ok(measured) => {
                        let lacks = |case: &&Case| measured.iter().all(|measured| measured.case != case.name);
                        let late: Vec<&str> = cases.iter().filter(lacks).map(|case| case.name.as_str()).collect();
                        if !late.is_empty() {
                            let (name, late) = (engine.name, late.join(" "));
                            out.push(name);
                            println!("{name} with {}: not done within {} s: {late}", at.name(), limit.as_secs());
                            // A peer that fails is reported without failing the run; our failure counts.
                            if name == OURS {
                                self.broken.push(format!("too slow for {late} with {}", at.name()));
                            }
                        }
                        self.results.add(&at.name(), at.ranks(), engine.name, cases, measured);
                    }
                    Err(error) if round == 0 => {
                        out.push(engine.name);
                        let what = format!("no figures of {} with {}", engine.name, at.name());
                        println!("{what}: {error:#}");
                        self.broken.push(what);
                    }
                    Err(error) => println!("{} with {} failed in a later round: {error:#}", engine.name, at.name()),
                }
            }
        }
        self.results.print(&at.name(), &self.peers());
    }

    /// Four hosts, then two: without a limit and with a usual link rate.
    fn between(&mut self, hosts: &Hosts, sweep: &[Case]) -> Result<()> {
        self.measure(Place::Hosts(hosts, HOSTS), sweep, &[]);
        let large = [Case::of_bytes(LARGE, self.budget())];
        for rate in [None, Some(CABLE)] {
            hosts.limit(rate)?;
            let at = Place::Hosts(hosts, 2);
            // Slow peers are left out: calls of a second each would only show the link rate.
            let without = if rate.is_some() { self.scale.pick(&options::PEERS[..], &[]) } else { &[] };
            self.measure(at, &large, without);
            match tcp::measure(hosts, self.scale.pick(1, 5)) {
                Ok(tcp) => {
                    let [one, both] = [tcp.one_way, tcp.both_ways].map(|rate| rate / 1e9);
                    println!("iperf3, {}: {one:.3} GB/s one way, {both:.3} GB/s each way when both send", at.name());
                    self.limits.tcp.push((at.name(), tcp.both_ways));
                }
                Err(error) => self.miss(format!("no iperf3: {error:#}")),
            }
        }
        Ok(())
    }

    /// One thread, and as many as there are ranks.
    fn copying(&mut self) {
        let budget = Duration::from_millis(self.scale.pick(5, 50));
        let counts: Vec<usize> = std::iter::once(1).chain(self.options.ranks.iter().copied()).collect();
        print!("\n{:<10}", "copies");
        counts.iter().for_each(|count| print!("{:>11}", format!("{count} threads")));
        println!("  GB/s together");
        for bytes in cases::sizes(self.scale).into_iter().filter(|bytes| *bytes >= 1024) {
            print!("{:<10}", cases::size(bytes));
            for count in &counts {
                let rate = copy::bytes_per_second(*count, bytes, budget);
                print!("{:>11.1}", rate / 1e9);
                if *count == 2 && bytes == LARGE {
                    self.limits.memory_ns = Some(copy::least_ns(bytes, 2, rate));
                }
            }
            println!();
        }
        if let Some(ns) = self.limits.memory_ns {
            println!("2 ranks cannot add up 64MB in less than 2.5 copies of it by 2 threads: {:.1} ms", ns / 1e6);
        }
    }

    fn peers(&self) -> Vec<&'static str> {
        self.engines[1..].iter().map(|engine| engine.name).collect()
    }

    fn miss(&mut self, what: String) {
        println!("{what}");
        self.broken.push(what);
    }

    fn end(self) -> Result<Verdict> {
        self.results.print_step();
        if let Some(file) = &self.options.json {
            let tcp: Vec<_> =
                self.limits.tcp.iter().map(|(at, rate)| json!({"place": at, "bytesPerSecond": rate})).collect();
            let limits = json!({"memory64MBNs": self.limits.memory_ns, "tcpBothWays": tcp});
            let text = format!("{:#}\n", json!({"results": self.results.json(), "limits": limits}));
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let goals = goals::judge(&self.results, &self.limits);
        println!();
        goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
        // Reports the first missed goal, else the first of all, which has the worst ratio.
        let figures = goals.iter().find(|goal| !goal.met).unwrap_or(&goals[0]).figures.clone();
        let met = self.broken.is_empty() && goals.iter().all(|goal| goal.met);
        let broken: String = self.broken.iter().map(|what| format!("; {what}")).collect();
        Ok(Verdict { met, figures: figures + &broken })
    }
}
