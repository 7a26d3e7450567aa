//! Our rank: trains the tutorial's network on a random batch for the requested number of steps. A mode of this binary, started
//! by `gang`, which pins it to its processors; it uses as many threads. Follows the contract in `turn`.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use corro_collectives::optimizer::{Optimizer, broadcast_parameters, scale_learning_rate};
use corro_collectives::{Engine, ReduceOp};
use corro_trainer::compute::{self, Compute, Isa};
use corro_trainer::distributed::RankOptimizer;
use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::network::{Batch, CLASSES, DropoutSeed, IMAGE, Weights};
use corro_trainer::random::Random;
use corro_trainer::rmsprop::{self, RmsProp};

use super::turn::{self, Exchange, Precision, Turn};

/// Hidden subcommand of this binary; its argument is the largest batch.
pub const SUBCOMMAND: &str = "trainer-rank";
const SEED: u64 = 7;
/// Learning rate of the tutorial's script.
const LEARNING_RATE: f32 = 1e-4;
const DECAY: f32 = 1e-6;

/// `trainer-rank BATCH`
pub fn run(arguments: &[String]) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[String]) -> Result<()> {
    let largest: usize = arguments.first().and_then(|word| word.parse().ok()).context("the largest batch is needed")?;
    let engine = Engine::start()?;
    let images = Images::random(engine.rank_info().rank, largest);
    let mut trainings: Vec<((Exchange, Precision), Training<'_>)> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let turn = Turn::parse(&line).with_context(|| format!("not a turn: {line}"))?;
        let key = (turn.exchange, turn.case.precision);
        if trainings.iter().all(|(other, _)| *other != key) {
            match compute(key.1, largest) {
                Ok(compute) => trainings.push((key, Training::new(&engine, key.0, compute)?)),
                Err(unsupported) => {
                    println!("{}", turn::format_unsupported(&unsupported));
                    continue;
                }
            }
        }
        let (_, training) = trainings.iter_mut().find(|(other, _)| *other == key).expect("made above");
        let began = Instant::now();
        for _ in 0..turn.steps {
            training.step(images.first(turn.case.batch))?;
        }
        println!("{}", turn::format_took(began.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Compute backend with as many threads as this rank has processors.
fn compute(precision: Precision, batch: usize) -> Result<Compute, compute::Unsupported> {
    let precision = match precision {
        Precision::F32 => compute::Precision::F32,
        Precision::Bf16 => compute::Precision::Bf16,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Compute::new(&compute::Config { threads, batch, precision, isa: Isa::best() })
}

/// One rank's network and its optimizer.
struct Training<'e> {
    compute: Compute,
    weights: Weights,
    update: RankUpdate<'e>,
    rank: u64,
    steps: u64,
}

/// How a step updates the weights: by this rank's own gradients, or by the average over all ranks.
enum RankUpdate<'e> {
    Local(RmsProp, Weights),
    Distributed(Box<RankOptimizer<'e>>),
}

impl<'e> Training<'e> {
    fn new(engine: &'e Engine, exchange: Exchange, mut compute: Compute) -> Result<Self> {
        let mut weights = glorot_uniform(SEED);
        let rate = scale_learning_rate(engine, LEARNING_RATE, ReduceOp::Average);
        let optimizer = RmsProp::new(&rmsprop::Config { rate, decay: DECAY }, compute.pool().clone());
        let update = match exchange {
            Exchange::Disabled => RankUpdate::Local(optimizer, Weights::zeros()),
            Exchange::Enabled => {
                broadcast_parameters(engine, &mut weights.slices_mut(), 0)?;
                let mut optimizer = RankOptimizer::new(engine, optimizer)?;
                optimizer.enable_stealing(&mut compute);
                optimizer.set_weights(&mut weights)?;
                RankUpdate::Distributed(Box::new(optimizer))
            }
        };
        Ok(Self { compute, weights, update, rank: engine.rank_info().rank as u64, steps: 0 })
    }

    fn step(&mut self, batch: Batch<'_>) -> Result<()> {
        let dropout_seed = DropoutSeed { seed: SEED, step: self.steps, first: self.rank * batch.len() as u64 };
        self.steps += 1;
        match &mut self.update {
            RankUpdate::Local(optimizer, gradients) => {
                self.compute.step(&self.weights, batch, Some(dropout_seed), gradients);
                for (index, (parameter, gradient)) in self.weights.0.iter_mut().zip(&gradients.0).enumerate() {
                    optimizer.step(index, parameter, gradient);
                }
            }
            RankUpdate::Distributed(optimizer) => {
                let mut sender = optimizer.gradient_sender();
                self.compute.step(&self.weights, batch, Some(dropout_seed), &mut sender);
                sender.end()?;
                optimizer.step(&mut self.weights, &mut self.compute)?;
            }
        }
        Ok(())
    }
}

/// The batch that all steps use.
struct Images {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl Images {
    fn random(rank: usize, count: usize) -> Self {
        let mut random = Random::from_key(&[SEED, rank as u64]);
        let pixels = (0..count * IMAGE).map(|_| random.uniform()).collect();
        Self { pixels, labels: (0..count).map(|_| random.below(CLASSES) as u8).collect() }
    }

    fn first(&self, count: usize) -> Batch<'_> {
        Batch { images: &self.pixels[..count * IMAGE], labels: &self.labels[..count] }
    }
}
