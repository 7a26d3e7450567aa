//! Images per second of the tutorial's training, 1, 2 and 4 ranks, against TensorFlow and PyTorch on the same cores.
//!
//! Every engine trains the same network with ranks that are processes, pinned to the same processors, on a batch that stays in
//! memory. At each placement all engines are started once and take turns (`trainer::interleaved`). TensorFlow is measured with
//! and without its own gradient exchange, and the faster of the two is compared with ours.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Scale, Verdict};
use crate::goal::Goal;
use crate::peers::{tensorflow, torch};
use crate::trainer::cpu_placement::{self, CpuPlacement};
use crate::trainer::gang::Program;
use crate::trainer::goals;
use crate::trainer::interleaved::{self, EngineSetup, Schedule};
use crate::trainer::options::{self, Options};
use crate::trainer::scaling::{self, ScalingResult};
use crate::trainer::table::{OURS, PYTORCH, Results, TENSORFLOW};
use crate::trainer::turn::{Case, Exchange, Precision};
use crate::trainer::worker;

pub const PROMISE: &str = "at least TensorFlow's step at every batch and number of ranks, fp32 and (with AMX) bf16; from 1 rank to 2 at least 95 %";

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let options = options::parse(arguments)?;
    let directory = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let cores = cpu_placement::allowed_cpus()?.len();
    let (engines, missing) = engines(&options, directory.path())?;
    let precisions = options.precisions.clone().unwrap_or_else(precisions);
    let benchmark = TrainerBenchmark { scale, options, engines, precisions, cores };
    benchmark.run(missing)
}

/// A training engine.
struct Engine {
    name: &'static str,
    program: Program,
}

/// Our engine and the requested peers that are installed; and the missing ones.
fn engines(options: &Options, directory: &std::path::Path) -> Result<(Vec<Engine>, Vec<String>)> {
    let largest = options.batches.iter().max().context("no batch")?;
    let arguments = vec![worker::SUBCOMMAND.to_owned(), largest.to_string()];
    let ours = Program { program: std::env::current_exe()?, arguments, variables: Vec::new(), ports: false };
    let (mut engines, mut missing) = (vec![Engine { name: OURS, program: ours }], Vec::new());
    for name in options::PEERS.into_iter().filter(|name| options.peers.iter().any(|peer| peer == name)) {
        let prepared = match name {
            TENSORFLOW => tensorflow::training(directory).map(|program| (program, tensorflow::VERSION.to_owned())),
            _ => torch::training(directory),
        };
        match prepared {
            Ok((program, version)) => {
                println!("peer: {name} {version}");
                engines.push(Engine { name, program });
            }
            Err(error) => {
                println!("peer: no {name}: {error:#}");
                missing.push(format!("no {name}"));
            }
        }
    }
    Ok((engines, missing))
}

/// All precisions where the processor has AMX instructions for bf16, else f32 only.
fn precisions() -> Vec<Precision> {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "amx_bf16") {
        return Precision::ALL.to_vec();
    }
    println!("no bf16: this processor has no AMX");
    vec![Precision::F32]
}

struct TrainerBenchmark {
    scale: Scale,
    options: Options,
    engines: Vec<Engine>,
    precisions: Vec<Precision>,
    cores: usize,
}

impl TrainerBenchmark {
    /// `failures` lists failed measurements; any of them makes the verdict `missed`.
    fn run(&self, mut failures: Vec<String>) -> Result<Verdict> {
        let (mut results, mut scaled) = (Results::default(), Vec::new());
        let ranks = self.options.ranks.clone().unwrap_or_else(|| self.scale.pick(vec![1, 2], vec![1, 2, 4]));
        for ranks in ranks {
            let placement = CpuPlacement { ranks, cores: self.cores };
            let setups = self.engines.iter().map(|engine| EngineSetup {
                engine: engine.name,
                program: engine.program.clone(),
                placement,
                variants: self.variants(engine.name, ranks),
            });
            failures.extend(interleaved::measure_interleaved(setups.collect(), self.schedule(), &mut results));
            results.print(placement);
        }
        if self.options.scaling && self.cores >= scaling::TWO_RANKS.cores {
            match self.scaling() {
                Ok(measured) => scaled = measured,
                Err(error) => failures.push(format!("no measurement from 1 rank to 2: {error:#}")),
            }
        }
        self.finish(&results, &scaled, &failures)
    }

    fn schedule(&self) -> Schedule {
        let rounds = self.options.rounds.unwrap_or(self.scale.pick(3, 9));
        Schedule { rounds, budget: Duration::from_millis(self.options.budget_ms.unwrap_or(self.scale.pick(200, 1000))) }
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        let batches = |precision| self.options.batches.iter().map(move |batch| Case { precision, batch: *batch });
        self.precisions.iter().copied().flat_map(batches)
    }

    /// Measurements of an engine. A quick run skips those that decide nothing: the slower variants of peers with bf16.
    fn variants(&self, engine: &str, ranks: usize) -> Vec<(Exchange, Case)> {
        let quick = self.scale == Scale::Quick;
        let exchanges = |case: Case| match engine {
            OURS => vec![Exchange::Enabled],
            _ if quick && case.precision == Precision::Bf16 && engine == PYTORCH => vec![],
            _ if ranks == 1 => vec![Exchange::Disabled],
            PYTORCH => vec![Exchange::Enabled],
            _ if quick && case.precision == Precision::Bf16 => vec![Exchange::Disabled],
            _ => vec![Exchange::Disabled, Exchange::Enabled],
        };
        self.cases().flat_map(|case| exchanges(case).into_iter().map(move |exchange| (exchange, case))).collect()
    }

    /// Our engine with one rank on one core and with two on two; and the gain of the second core when nothing is exchanged.
    fn scaling(&self) -> Result<Vec<ScalingResult>> {
        // bf16 decides nothing here.
        let cases = self.cases().filter(|case| self.scale == Scale::Full || case.precision == Precision::F32);
        let rounds = self.options.rounds.unwrap_or(self.scale.pick(9, 25));
        // Short turns, so that compared measurements are close in time.
        let budget = Duration::from_millis(self.options.budget_ms.unwrap_or(self.scale.pick(150, 300)));
        let scaled =
            scaling::measure(&self.engines[0].program, &cases.collect::<Vec<_>>(), Schedule { rounds, budget })?;
        scaling::print(&scaled);
        Ok(scaled)
    }

    fn finish(&self, results: &Results, scaled: &[ScalingResult], failures: &[String]) -> Result<Verdict> {
        if let Some(file) = &self.options.json {
            let text = format!(
                "{:#}\n",
                json!({"results": results.json(), "scaling": scaled.iter().map(ScalingResult::json).collect::<Vec<_>>()})
            );
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        println!();
        failures.iter().for_each(|failure| println!("{failure}"));
        let against = |precision: &Precision| goals::against_tensorflow(results, *precision);
        let mut goals: Vec<Goal> = self.precisions.iter().map(against).collect();
        goals.push(goals::scaling(scaled));
        goals.iter().for_each(|goal| println!("goal {}: {}", if goal.met { "met" } else { "missed" }, goal.figures));
        let figures: Vec<&str> =
            goals.iter().map(|goal| goal.figures.as_str()).chain(failures.iter().map(String::as_str)).collect();
        Ok(Verdict { met: failures.is_empty() && goals.iter().all(|goal| goal.met), figures: figures.join("; ") })
    }
}
