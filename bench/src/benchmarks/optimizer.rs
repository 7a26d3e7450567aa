//! Training steps of ResNet-50 with `horovod.torch`, 1, 2 and 4 ranks, against DistributedDataParallel and plain PyTorch.
//!
//! Every engine trains the same model (`peers/optimizer.py`) with ranks that are processes, pinned to the same processors. At
//! each placement all engines are started once and take turns; the goals use the median of the ratios within a round.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::{Scale, Verdict};
use crate::goal::worst_ratio;
use crate::peers::{torch, upstream};
use crate::steps::interleaved::{Case, EngineSetup, Schedule, measure_interleaved};
use crate::steps::options::{self, AcceptedValues, Options};
use crate::steps::rounds::{MeasurementKey, Results, print_ratio};
use crate::steps::{goals, package};
use crate::trainer::cpu_placement::{self, CpuPlacement};
use crate::trainer::gang::Program;

pub const PROMISE: &str =
    "at least 1.0 times the throughput of DistributedDataParallel over Gloo; at 1 rank under 2 % of a step";

const PROGRAM: &str = include_str!("../peers/optimizer.py");
const OURS: &str = "ours";
const PLAIN: &str = "plain torch";
const DDP: &str = "ddp";
const VIEWS: &str = "ddp-views";
const UPSTREAM: &str = "upstream";
/// A real model, with which the overhead of our layer is measured.
const RESNET: &str = "resnet50";

const ACCEPTED: AcceptedValues = AcceptedValues {
    usage:
        "options of optimizer: --ranks 1,2,4  --models resnet50,shapes  --batch N  --peers ddp,ddp-views,upstream|none
    --rounds N  --budget MS (a turn)  --wheel FILE",
    ranks: &[1, 2, 4],
    peers: &[DDP, VIEWS, UPSTREAM],
    models: &[RESNET, "shapes"],
};

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let options = options::parse(arguments, &ACCEPTED)?;
    let directory = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let (programs, missing) = programs(scale, &options, directory.path())?;
    let benchmark = OptimizerBenchmark { scale, options, programs, cores: cpu_placement::allowed_cpus()?.len() };
    Ok(benchmark.run(missing))
}

/// A name, and the command of a rank.
type Engine = (&'static str, Program);

/// Ours, plain torch and the requested peers that are installed; and the missing ones.
fn programs(scale: Scale, options: &Options, directory: &Path) -> Result<(Vec<Engine>, Vec<String>)> {
    let (python, version) = torch::interpreter_with_fast_blas()?;
    println!("torch: {version}");
    let script = directory.join("optimizer.py");
    std::fs::write(&script, PROGRAM)?;
    let program = |python: PathBuf, engine: &str, variables| {
        let arguments = vec![script.display().to_string(), engine.to_owned()];
        Program { program: python, arguments, variables, ports: false }
    };
    let package = package::unpack(&package::find_or_build(options.wheel.as_deref())?, directory)?;
    let ours = vec![("PYTHONPATH", package.display().to_string())];
    let mut programs =
        vec![(OURS, program(python.clone(), "horovod", ours)), (PLAIN, program(python.clone(), "plain", Vec::new()))];
    let mut missing = Vec::new();
    let is_selected = |peer: &str| match &options.peers {
        Some(peers) => peers.iter().any(|name| name == peer),
        // A quick run skips measurements that decide nothing.
        None => peer == DDP || (scale == Scale::Full && (peer == VIEWS || upstream::installed().is_some())),
    };
    for peer in ACCEPTED.peers.iter().copied().filter(|peer| is_selected(peer)) {
        if peer != UPSTREAM {
            programs.push((peer, program(python.clone(), peer, Vec::new())));
            continue;
        }
        match upstream::interpreter() {
            Ok(python) => {
                println!("peer: {peer} horovod {}", upstream::VERSION);
                programs.push((peer, program(python, "horovod", Vec::new())));
            }
            Err(error) => {
                println!("peer: no {peer}: {error:#}");
                missing.push(format!("no {peer}"));
            }
        }
    }
    Ok((programs, missing))
}

struct OptimizerBenchmark {
    scale: Scale,
    options: Options,
    programs: Vec<Engine>,
    cores: usize,
}

impl OptimizerBenchmark {
    /// `failures` lists failed measurements; any of them makes the verdict `missed`.
    fn run(&self, mut failures: Vec<String>) -> Verdict {
        let (mut against, mut goals) = (Vec::new(), Vec::new());
        for ranks in self.options.ranks.iter().copied() {
            let placement = CpuPlacement { ranks, cores: self.cores };
            let mut results = Results::default();
            let setups: Vec<EngineSetup> = self.setups(placement);
            let cases: Vec<Case> = self.cases(ranks);
            failures.extend(measure_interleaved(&setups, &cases, self.schedule(ranks), &mut results));
            results.print();
            for case in &cases {
                let ratios = |peer: &str| {
                    let key = |engine| MeasurementKey { placement, case: &case.name, engine };
                    let ratios = results.ratios(key(OURS), key(peer))?;
                    print_ratio(&format!("{}: ours by {peer}", case.name), &ratios);
                    Some(ratios)
                };
                if ranks == 1 {
                    goals.push(goals::overhead(ratios(PLAIN).as_ref(), PLAIN));
                }
                let ddp = ratios(DDP).map(|ratios| (ratios.p50(), format!("{}, {}", case.name, placement.name())));
                against.extend(ddp.filter(|_| ranks > 1));
                [VIEWS, UPSTREAM].into_iter().for_each(|peer| drop(ratios(peer)));
            }
        }
        goals.insert(0, worst_ratio(against.into_iter(), 1.0, "times DistributedDataParallel"));
        goals::verdict(&goals, &failures)
    }

    /// A single rank is compared with plain torch; several with peers that exchange gradients too.
    fn setups(&self, placement: CpuPlacement) -> Vec<EngineSetup> {
        let takes_part = |engine: &str| engine == OURS || (engine == PLAIN) == (placement.ranks == 1);
        let programs = self.programs.iter().filter(|(engine, _)| takes_part(engine));
        programs.map(|(engine, program)| EngineSetup { engine, program: program.clone(), placement }).collect()
    }

    /// A model without computation says nothing about the relative cost of a layer.
    fn cases(&self, ranks: usize) -> Vec<Case> {
        let batch = self.options.batch.unwrap_or(16);
        let models = self.options.models.iter().filter(|model| ranks > 1 || *model == RESNET);
        let case = |model: &String| Case {
            name: format!("{model}, batch {batch}"),
            request: format!("{model} {batch}"),
            batch,
        };
        models.map(case).collect()
    }

    /// An overhead of percents shows only in many short rounds; with more ranks than cores a step is long.
    fn schedule(&self, ranks: usize) -> Schedule {
        let rounds = match ranks {
            1 => self.scale.pick(12, 60),
            2 => self.scale.pick(5, 25),
            _ => self.scale.pick(3, 15),
        };
        let budget = self.options.budget_ms.unwrap_or(self.scale.pick(400, 800));
        Schedule { rounds: self.options.rounds.unwrap_or(rounds), budget: Duration::from_millis(budget) }
    }
}
