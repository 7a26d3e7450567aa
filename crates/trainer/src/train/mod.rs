//! The training of one rank: the five Horovod steps, epochs, validation, checkpoints, the result. Ranks communicate
//! only through the collectives engine.
//!
//! [`settings`] has the hyperparameters, `run_fingerprint` identifies a run by them. [`run`] executes the five steps;
//! `cpu_pinning` pins the rank, `resume` loads the start state, `epochs` trains, `run_dir` writes checkpoints and
//! metrics, and `results` saves and scores the model. `elastic` does the same in a job whose ranks change.

mod cpu_pinning;
mod elastic;
mod epochs;
mod error;
mod results;
mod resume;
mod run_dir;
mod run_fingerprint;
pub mod settings;

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use corro_collectives::elastic::ElasticProcess;
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

/// Options of a run that do not affect its result.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Output directory, written by rank 0.
    pub dir: &'a Path,
    /// Delete existing checkpoints instead of resuming.
    pub fresh: bool,
    /// Width of the terminal, if `out` is one.
    pub terminal: Option<usize>,
    /// Called after each step of an elastic training.
    pub on_step: Option<&'a dyn Fn(&CompletedStep)>,
}

/// A step of an elastic training that this rank has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedStep {
    /// Completed steps.
    pub iterations: u64,
    /// From 0.
    pub epoch: usize,
    /// Images that this rank used, as positions in the epoch's order, which all ranks share.
    pub positions: Range<usize>,
}

/// Result of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingResult {
    pub model: PathBuf,
    /// Over all test images.
    pub test: Score,
}

/// Trains the network, resumes from the last checkpoint in the directory, or only scores a finished training again.
/// Collective over all ranks.
///
/// # Errors
///
/// If a setting, the data, the directory or this machine cannot be used, and if another rank has failed: the error
/// names it.
pub fn run(settings: &Settings, options: &Options<'_>, out: &mut dyn Write) -> Result<TrainingResult, TrainError> {
    settings.check()?;
    if let Some(process) = ElasticProcess::from_environment().map_err(StartError::Launch)? {
        return elastic::run(&process, settings, options, out);
    }

    // 1. Init: connect to the other ranks. Without a launcher this is the only rank.
    let engine = start_engine()?;
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);

    // 2. Pin: every rank computes on CPUs of its own.
    let n_cpus = cpu_pinning::pin(&engine)?;
    let mut compute = Compute::new(&compute::Config {
        threads: settings.threads.unwrap_or(n_cpus),
        batch: settings.batch,
        precision: settings.precision.into(),
        isa: Isa::best(),
    })?;
    let dataset = data::open(&settings.source())?;
    print_summary(settings, &dataset, size, out)?;

    // 3. Scale: more ranks take larger steps and divide the epochs.
    let rate = scale_learning_rate(&engine, settings.learning_rate, ReduceOp::Average);
    let epochs = settings.epochs.div_ceil(size);

    // 4. Wrap: the optimizer gets the averaged gradients of all ranks.
    let rmsprop = RmsProp::new(&rmsprop::Config { rate, decay: settings.decay }, compute.pool().clone());
    let mut optimizer = RankOptimizer::new(&engine, rmsprop)?;
    optimizer.enable_stealing(&mut compute);

    // 5. Broadcast: all ranks start from the state of rank 0.
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
    // No rank may leave while others still communicate.
    engine.barrier(SetId::GLOBAL).map_err(TrainError::Ranks)?;
    Ok(result)
}

/// Starts the engine without tensor fusion. In a ring allreduce the order of additions depends on an element's offset
/// in the fused buffer, so fusion would make results depend on timing. Unfused, the same seed gives the same weights.
fn start_engine() -> Result<Engine, TrainError> {
    let launch = Launch::from_environment().map_err(StartError::Launch)?;
    Ok(Engine::start_with(&launch, &engine_settings()?, &[])?)
}

fn engine_settings() -> Result<corro_collectives::Settings, TrainError> {
    let mut settings = corro_collectives::Settings::from_environment().map_err(StartError::Settings)?;
    settings.fusion_threshold = 0;
    settings.autotune.fusion_threshold_fixed = true;
    Ok(settings)
}

/// Prints the data set's size as the script does, after notes on synthetic data and on the number of ranks.
fn print_summary(settings: &Settings, dataset: &Dataset, size: usize, out: &mut dyn Write) -> Result<(), TrainError> {
    print_source(settings, out)?;
    if size > 1 {
        let (epochs, each) = (settings.epochs, settings.epochs.div_ceil(size));
        writeln!(out, "{size} ranks share {epochs} epochs: each trains {each}, with {size} times the learning rate.")?;
    }
    print_dataset(settings, dataset, out)
}

fn print_source(settings: &Settings, out: &mut dyn Write) -> Result<(), TrainError> {
    if let data::Source::Synthetic { .. } = settings.source() {
        writeln!(out, "Synthetic images, made from the seed: --data gives those of CIFAR-10.")?;
    }
    Ok(())
}

fn print_dataset(settings: &Settings, dataset: &Dataset, out: &mut dyn Write) -> Result<(), TrainError> {
    let (train, test) = (dataset.train.labels.len(), dataset.test.labels.len());
    writeln!(out, "x_train shape: ({train}, {SIDE}, {SIDE}, {CHANNELS})")?;
    writeln!(out, "{train} train samples")?;
    writeln!(out, "{test} test samples")?;
    let using = if settings.augmentation { "Using real-time" } else { "Not using" };
    writeln!(out, "{using} data augmentation.")?;
    Ok(out.flush()?)
}
