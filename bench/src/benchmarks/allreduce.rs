//! Allreduce latency and bandwidth, 4 B to 256 MB, on one and several hosts, against Open MPI, MPICH, Gloo and Horovod.
//!
//! Every engine sums the same numbers in place with ranks that are processes, and its rank 0 reports the time of a call; all
//! measure the same way (`allreduce::worker`). Engines take turns at each placement, so that other load on the machine affects
//! all alike. The limits are measured in the same run: memory copies within a host, iperf3 between hosts.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Scale, Verdict};
use crate::allreduce::cases::{self, Case, Measurement};
use crate::allreduce::goals::{self, Limits};
use crate::allreduce::hosts::Hosts;
use crate::allreduce::options::{self, Options};
use crate::allreduce::placement::Placement;
use crate::allreduce::table::{OURS, Results};
use crate::allreduce::{copy, gang, kernels, tcp, worker};
use crate::peers::mpi::{Implementation, Mpi};
use crate::peers::torch::Torch;

pub const PROMISE: &str =
    "the ordered API at least as fast as the fastest peer everywhere, 2 times Gloo from 1 MB up; five more goals";
/// MPICH, the one engine without an oversubscription mode: with more ranks than cores a call takes a time slice of the
/// scheduler.
const SPINNING_PEER: &str = "mpich";
/// Gloo, whose ranks import PyTorch and so take seconds to start.
const SLOW_START_PEER: &str = "gloo";
const HOSTS: usize = 4;
const LARGE_BYTES: usize = 64 << 20;
/// Rate limit of the second measurement between two hosts.
const LINK_RATE: &str = "1gbit";

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let options = options::parse(arguments)?;
    let directory = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let (engines, missing) = engines(&options, directory.path());
    let mut benchmark = AllreduceBenchmark {
        scale,
        options,
        engines,
        results: Results::default(),
        limits: Limits::default(),
        failures: missing,
    };
    if benchmark.options.limits {
        benchmark.measure_copies();
        kernels::print(Duration::from_millis(scale.pick(1, 20)));
    }
    let sweep = benchmark.sweep();
    for ranks in benchmark.options.ranks.clone() {
        benchmark.measure(Placement::OneHost(ranks), &sweep, &[]);
    }
    if benchmark.options.hosts {
        match Hosts::create(HOSTS) {
            Ok(hosts) => benchmark.measure_between_hosts(&hosts, &sweep)?,
            Err(error) => benchmark.record_failure(format!("no measurement between hosts: {error:#}")),
        }
    }
    benchmark.finish()
}

type MeasureFn = dyn Fn(Placement<'_>, &[Case], Duration) -> Result<Vec<Measurement>>;

/// An engine that sums over ranks.
struct Engine {
    name: &'static str,
    run: Box<MeasureFn>,
}

/// Our engine and the requested peers that are installed; and the missing ones.
fn engines(options: &Options, directory: &std::path::Path) -> (Vec<Engine>, Vec<String>) {
    let (mut engines, mut missing) = (vec![Engine { name: OURS, run: Box::new(run_ours) }], Vec::new());
    let prebuilt = options.prebuilt.as_deref();
    for name in options::PEERS.into_iter().filter(|name| options.peers.iter().any(|peer| peer == name)) {
        let prepared = match name {
            "openmpi" => Mpi::prepare(Implementation::OpenMpi, directory, prebuilt).map(|mpi| from_mpi(name, mpi)),
            "mpich" => Mpi::prepare(Implementation::Mpich, directory, prebuilt).map(|mpi| from_mpi(name, mpi)),
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
    (Engine { name, run: Box::new(move |placement, cases, limit| mpi.run(placement, cases, limit)) }, version)
}

fn from_torch(name: &'static str, torch: Torch) -> (Engine, String) {
    let version = if name == "gloo" { format!("of torch {}", torch.version) } else { torch.version.clone() };
    (Engine { name, run: Box::new(move |placement, cases, limit| torch.run(placement, cases, limit)) }, version)
}

/// Two API variants, and so twice the time.
fn run_ours(placement: Placement<'_>, cases: &[Case], limit: Duration) -> Result<Vec<Measurement>> {
    let mut arguments = vec![worker::SUBCOMMAND.to_owned()];
    arguments.extend(cases.iter().map(Case::to_argument));
    cases::parse_output(&gang::run(placement, &std::env::current_exe()?, &arguments, 2 * limit)?, cases)
}

/// The running benchmark and its results so far.
struct AllreduceBenchmark {
    scale: Scale,
    options: Options,
    engines: Vec<Engine>,
    results: Results,
    limits: Limits,
    /// Failed measurements; any of them makes the verdict `missed`.
    failures: Vec<String>,
}

impl AllreduceBenchmark {
    fn sweep(&self) -> Vec<Case> {
        let budget = self.budget();
        let sizes = self.options.sizes.clone().unwrap_or_else(|| cases::sweep_sizes(self.scale));
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

    /// Measures the engines that are not in `excluded`, in turns, and prints the table.
    fn measure(&mut self, placement: Placement<'_>, cases: &[Case], excluded: &[&'static str]) {
        let limit = Duration::from_secs(self.scale.pick(4, 90));
        let mut skipped = excluded.to_vec();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Combinations that would take a quick run beyond its minute where ranks share cores.
        let slow = [
            (SPINNING_PEER, placement.ranks() > cores, "it does not yield"),
            (
                SLOW_START_PEER,
                placement.ranks() > cores && matches!(placement, Placement::OneHost(_)),
                "its ranks take seconds to start",
            ),
        ];
        for (name, _, reason) in slow.into_iter().filter(|(_, applies, _)| *applies && self.scale == Scale::Quick) {
            if self.peers().contains(&name) && !skipped.contains(&name) {
                println!(
                    "{name} with {}: left out of a quick run: {reason}, and there are {cores} cores",
                    placement.name()
                );
                skipped.push(name);
            }
        }
        for round in 0..self.options.rounds.unwrap_or(self.scale.pick(1, 3)) {
            for engine in &self.engines {
                if skipped.contains(&engine.name) {
                    continue;
                }
                match (engine.run)(placement, cases, limit) {
                    Ok(measured) => {
                        let is_missing = |case: &&Case| measured.iter().all(|measured| measured.case != case.name);
                        let missing: Vec<&str> =
                            cases.iter().filter(is_missing).map(|case| case.name.as_str()).collect();
                        if !missing.is_empty() {
                            let (name, missing) = (engine.name, missing.join(" "));
                            skipped.push(name);
                            println!(
                                "{name} with {}: not done within {} s: {missing}",
                                placement.name(),
                                limit.as_secs()
                            );
                            // A peer that fails is reported without failing the run; our failure counts.
                            if name == OURS {
                                self.failures.push(format!("too slow for {missing} with {}", placement.name()));
                            }
                        }
                        self.results.add(&placement.name(), placement.ranks(), engine.name, cases, measured);
                    }
                    Err(error) if round == 0 => {
                        skipped.push(engine.name);
                        let failure = format!("no measurement of {} with {}", engine.name, placement.name());
                        println!("{failure}: {error:#}");
                        self.failures.push(failure);
                    }
                    Err(error) => {
                        println!("{} with {} failed in a later round: {error:#}", engine.name, placement.name())
                    }
                }
            }
        }
        self.results.print(&placement.name(), &self.peers());
    }

    /// Four hosts, then two: without a limit and with a usual link rate.
    fn measure_between_hosts(&mut self, hosts: &Hosts, sweep: &[Case]) -> Result<()> {
        self.measure(Placement::Hosts(hosts, HOSTS), sweep, &[]);
        let large = [Case::of_bytes(LARGE_BYTES, self.budget())];
        for rate in [None, Some(LINK_RATE)] {
            hosts.limit_rate(rate)?;
            let placement = Placement::Hosts(hosts, 2);
            // Slow peers are left out: calls of a second each would only show the link rate.
            let excluded = if rate.is_some() { self.scale.pick(&options::PEERS[..], &[]) } else { &[] };
            self.measure(placement, &large, excluded);
            match tcp::measure(hosts, self.scale.pick(1, 5)) {
                Ok(tcp) => {
                    let [one, both] = [tcp.one_way, tcp.both_ways].map(|rate| rate / 1e9);
                    println!(
                        "iperf3, {}: {one:.3} GB/s one way, {both:.3} GB/s each way when both send",
                        placement.name()
                    );
                    self.limits.tcp.push((placement.name(), tcp.both_ways));
                }
                Err(error) => self.record_failure(format!("no iperf3: {error:#}")),
            }
        }
        Ok(())
    }

    /// One thread, and as many as there are ranks.
    fn measure_copies(&mut self) {
        let budget = Duration::from_millis(self.scale.pick(5, 50));
        let counts: Vec<usize> = std::iter::once(1).chain(self.options.ranks.iter().copied()).collect();
        print!("\n{:<10}", "copies");
        counts.iter().for_each(|count| print!("{:>11}", format!("{count} threads")));
        println!("  GB/s together");
        for bytes in cases::sweep_sizes(self.scale).into_iter().filter(|bytes| *bytes >= 1024) {
            print!("{:<10}", cases::format_size(bytes));
            for count in &counts {
                let rate = copy::bytes_per_second(*count, bytes, budget);
                print!("{:>11.1}", rate / 1e9);
                if *count == 2 && bytes == LARGE_BYTES {
                    self.limits.memory_ns = Some(copy::lower_bound_ns(bytes, 2, rate));
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

    fn record_failure(&mut self, failure: String) {
        println!("{failure}");
        self.failures.push(failure);
    }

    fn finish(self) -> Result<Verdict> {
        self.results.print_step();
        if let Some(file) = &self.options.json {
            let tcp: Vec<_> = self
                .limits
                .tcp
                .iter()
                .map(|(placement, rate)| json!({"place": placement, "bytesPerSecond": rate}))
                .collect();
            let limits = json!({"memory64MBNs": self.limits.memory_ns, "tcpBothWays": tcp});
            let text = format!("{:#}\n", json!({"results": self.results.json(), "limits": limits}));
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let goals = goals::evaluate(&self.results, &self.limits);
        println!();
        goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
        // Reports the first missed goal, else the first of all, which has the worst ratio.
        let figures = goals.iter().find(|goal| !goal.met).unwrap_or(&goals[0]).figures.clone();
        let met = self.failures.is_empty() && goals.iter().all(|goal| goal.met);
        let failures: String = self.failures.iter().map(|failure| format!("; {failure}")).collect();
        Ok(Verdict { met, figures: figures + &failures })
    }
}
