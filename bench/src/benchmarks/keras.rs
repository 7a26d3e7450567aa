//! Images per second of the tutorial's network with `horovod.keras`, 1, 2 and 4 ranks, against plain Keras.
//!
//! Keras on TensorFlow, `model.fit` with the lines of the tutorial's script (`peers/keras_fit.py`), one thread per rank, pinned
//! to a processor. All are started once and take turns; the goals use the median of the ratios within a round. Plain Keras also
//! runs twice side by side, without any exchange, which shows the gain of this machine's second processor.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::{Scale, Verdict};
use crate::goal::{Goal, worst_ratio};
use crate::peers::tensorflow;
use crate::steps::interleaved::{Case, EngineSetup, Schedule, measure_interleaved};
use crate::steps::options::{self, AcceptedValues};
use crate::steps::rounds::{MeasurementKey, Results, print_ratio};
use crate::steps::{goals, package};
use crate::trainer::cpu_placement::{self, CpuPlacement};
use crate::trainer::gang::Program;

pub const PROMISE: &str =
    "at 1 rank under 2 % of a step; from 1 rank to 2 on as many cores at least 80 % of twice the images";

const PROGRAM: &str = include_str!("../peers/keras_fit.py");
const OURS: &str = "horovod.keras";
const PLAIN: &str = "plain keras";
const BATCH: usize = 32;
/// Goal for two ranks on two cores, as a fraction of twice the images of one rank on one core.
const MIN_SCALING: f64 = 0.8;

const ACCEPTED: AcceptedValues = AcceptedValues {
    usage: "options of keras: --ranks 1,2,4  --batch N  --rounds N  --budget MS (a turn)  --wheel FILE",
    ranks: &[1, 2, 4],
    peers: &[],
    models: &[],
};

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let options = options::parse(arguments, &ACCEPTED)?;
    let directory = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let script = directory.path().join("keras_fit.py");
    std::fs::write(&script, PROGRAM)?;
    let python = tensorflow::interpreter()?;
    println!("tensorflow: {}", tensorflow::VERSION);
    let package = package::unpack(&package::find_or_build(options.wheel.as_deref())?, directory.path())?;
    let program = |engine: &str, variables| Program {
        program: PathBuf::clone(&python),
        arguments: vec![script.display().to_string(), engine.to_owned()],
        variables,
        ports: false,
    };
    let ours = program("horovod", vec![("PYTHONPATH", package.display().to_string())]);
    let plain = program("plain", Vec::new());

    let cores = cpu_placement::allowed_cpus()?.len();
    let placement = |ranks: usize| CpuPlacement { ranks, cores: ranks.min(cores) };
    let setup = |engine, program: &Program, ranks| EngineSetup {
        engine,
        program: program.clone(),
        placement: placement(ranks),
    };
    let mut setups: Vec<EngineSetup> = Vec::new();
    setups.push(setup(PLAIN, &plain, 1));
    setups.extend(options.ranks.iter().map(|ranks| setup(OURS, &ours, *ranks)));
    if options.ranks.contains(&2) {
        setups.push(setup(PLAIN, &plain, 2));
    }

    let batch = options.batch.unwrap_or(BATCH);
    let case = Case { name: format!("batch {batch}"), request: batch.to_string(), batch };
    let budget = Duration::from_millis(options.budget_ms.unwrap_or(scale.pick(500, 1500)));
    let schedule = Schedule { rounds: options.rounds.unwrap_or(scale.pick(7, 25)), budget };
    let mut results = Results::default();
    let failures = measure_interleaved(&setups, std::slice::from_ref(&case), schedule, &mut results);
    results.print();
    Ok(goals::verdict(&goals(&results, &case, placement), &failures))
}

fn goals(results: &Results, case: &Case, placement: impl Fn(usize) -> CpuPlacement) -> Vec<Goal> {
    println!();
    let ratios = |one: (&'static str, usize), other: (&'static str, usize)| {
        let key = |(engine, ranks): (&'static str, usize)| MeasurementKey {
            placement: placement(ranks),
            case: &case.name,
            engine,
        };
        results.ratios(key(one), key(other))
    };
    let plain = ratios((OURS, 1), (PLAIN, 1));
    let scaled = ratios((OURS, 2), (OURS, 1));
    let lines = [
        ("1 rank: ours by plain", &plain),
        ("2 ranks: ours by ours at 1", &scaled),
        ("2 ranks: plain, no exchange, by plain at 1", &ratios((PLAIN, 2), (PLAIN, 1))),
        ("2 ranks: ours by plain, no exchange", &ratios((OURS, 2), (PLAIN, 2))),
        ("4 ranks: ours by ours at 1", &ratios((OURS, 4), (OURS, 1))),
    ];
    for (name, ratios) in lines {
        if let Some(ratios) = ratios {
            print_ratio(name, ratios);
        }
    }
    let fraction = scaled.map(|ratios| (ratios.p50() / 2.0, case.name.clone()));
    vec![
        goals::overhead(plain.as_ref(), PLAIN),
        worst_ratio(fraction.into_iter(), MIN_SCALING, "of twice one rank with two on two cores"),
    ]
}
