//! The whole training of one rank: the five Horovod steps, epochs, validation, checkpoints, the result. `corro train` enters, once for
//! each rank; the ranks meet in the engine and in nothing else.
//!
//! [`settings`] is what a training is to be, `run_fingerprint` which it is. [`run`] takes the five steps; `cpu_pinning` finds this rank's,
//! `resume` where a training begins or goes on, `epochs` trains, with `run_dir` before the directory, and `results` ends it.

mod cpu_pinning;
mod epochs;
mod error;
mod results;
mod resume;
mod run_dir;
mod run_fingerprint;
pub mod settings;

use std::io::Write;
use std::path::{Path, PathBuf};

use corro_collectives::optimizer::scale_learning_rate;
use corro_collectives::{Engine, Launch, ReduceOp, SetId, StartError};

use crate::compute::{self, Compute, Isa};
use crate::data::{self, Dataset};
use crate::distributed::RankOptimizer;
use crate::network::{CHANNELS, SIDE, Score};
use crate::report::progress::ProgressOutput;
use crate::rmsprop::{self, RmsProp};

pub use error::TrainError;
pub use settings::Settings;

use epochs::Training;
use resume::StartState;
use run_fingerprint::RunFingerprint;

/// What is told about a run, and not about the training.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Everything that stays is written here, by rank 0.
    pub dir: &'a Path,
    /// Checkpoints that are there are deleted instead of resumed.
    pub fresh: bool,
    /// How wide the terminal is that `out` is, if it is one.
    pub terminal: Option<usize>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingResult {
    pub model: PathBuf,
    /// Over all test images.
    pub test: Score,
}

/// Trains, or goes on where the last checkpoint in the directory is, or scores again what is finished. Collective over all ranks.
///
/// # Errors
/// When a setting, the images, the directory or this machine cannot be used, and when another rank has ended: it is named.
pub fn run(settings: &Settings, options: &Options<'_>, out: &mut dyn Write) -> Result<TrainingResult, TrainError> {
    settings.check()?;

    // 1. Init: find the other ranks. Without any launcher this one is alone.
    let engine = start_engine()?;
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);

    // 2. Pin: every rank computes on processors of its own.
    let n_cpus = cpu_pinning::pin(&engine)?;
    let mut compute = Compute::new(&compute::Config {
        threads: settings.threads.unwrap_or(n_cpus),
        batch: settings.batch,
        precision: settings.precision.into(),
        isa: Isa::best(),
    })?;
    let dataset = data::open(&settings.source())?;
    print_summary(settings, &dataset, size, out)?;

    // 3. Scale: more ranks make larger steps, and share the epochs out.
    let rate = scale_learning_rate(&engine, settings.learning_rate, ReduceOp::Average);
    let epochs = settings.epochs.div_ceil(size);

    // 4. Wrap: the optimizer will see the gradients of all ranks.
    let rmsprop = RmsProp::new(&rmsprop::Config { rate, decay: settings.decay }, compute.pool().clone());
    let mut optimizer = RankOptimizer::new(&engine, rmsprop)?;
    optimizer.enable_stealing(&mut compute);

    // 5. Broadcast: all ranks begin where rank 0 begins.
    let fingerprint = RunFingerprint::new(settings, &dataset, size);
    let start_state = StartState::load(&engine, &fingerprint, settings, options)?;
    start_state.report(options.dir, epochs, out)?;
    let StartState { mut weights, accumulators, iterations, epoch, run_dir, .. } = start_state;
    optimizer.set_weights(&mut weights)?;
    optimizer.inner().set_state(rmsprop::State { accumulators, iterations });

    let terminal = options.terminal.filter(|_| rank == 0);
    let output = terminal.map_or(ProgressOutput::Log, |columns| ProgressOutput::Terminal { columns });
    let mut training =
        Training { engine: &engine, settings, fingerprint, dataset, compute, optimizer, weights, rate, epochs, output };
    training.train(epoch, iterations, run_dir, out)?;
    let result = results::save_and_score(&mut training, options.dir, out)?;
    // Nobody leaves while others still speak.
    engine.barrier(SetId::GLOBAL).map_err(TrainError::Ranks)?;
    Ok(result)
}

/// As Horovod does, with one difference: where gradients meet in a ring, the order in which an element is added up depends on its place
/// among those it travels with. So every gradient travels alone, and the same seed gives the same weights.
fn start_engine() -> Result<Engine, TrainError> {
    let launch = Launch::from_environment().map_err(StartError::Launch)?;
    let mut settings = corro_collectives::Settings::from_environment().map_err(StartError::Settings)?;
    settings.fusion_threshold = 0;
    settings.autotune.fusion_threshold_fixed = true;
    Ok(Engine::start_with(&launch, &settings, &[])?)
}

/// As the script, behind what it does not say.
fn print_summary(settings: &Settings, dataset: &Dataset, size: usize, out: &mut dyn Write) -> Result<(), TrainError> {
    if let data::Source::Synthetic { .. } = settings.source() {
        writeln!(out, "Synthetic images, made from the seed: --data gives those of CIFAR-10.")?;
    }
    if size > 1 {
        let (epochs, each) = (settings.epochs, settings.epochs.div_ceil(size));
        writeln!(out, "{size} ranks share {epochs} epochs: each trains {each}, with {size} times the learning rate.")?;
    }
    let (train, test) = (dataset.train.labels.len(), dataset.test.labels.len());
    writeln!(out, "x_train shape: ({train}, {SIDE}, {SIDE}, {CHANNELS})")?;
    writeln!(out, "{train} train samples")?;
    writeln!(out, "{test} test samples")?;
    let using = if settings.augmentation { "Using real-time" } else { "Not using" };
    writeln!(out, "{using} data augmentation.")?;
    Ok(out.flush()?)
}
