//! The whole training of one rank: the five Horovod steps, epochs, validation, checkpoints, the result. `corro train` enters, once for
//! each rank; the ranks meet in the engine and in nothing else.
//!
//! [`settings`] is what a training is to be, `identity` which it is. [`run`] takes the five steps; `processors` finds this rank's,
//! `beginning` where a training begins or goes on, `epochs` trains, with `keeper` before the directory, and `results` ends it.

mod beginning;
mod epochs;
mod error;
mod identity;
mod keeper;
mod processors;
mod results;
pub mod settings;

use std::io::Write;
use std::path::{Path, PathBuf};

use corro_collectives::optimizer::scale_learning_rate;
use corro_collectives::{Engine, Launch, ReduceOp, SetId, StartError};

use crate::compute::{self, Compute, Isa};
use crate::data::{self, Dataset};
use crate::network::{CHANNELS, SIDE, Score};
use crate::report::progress::Paper;
use crate::rmsprop::{self, RmsProp};
use crate::wrapped::Wrapped;

pub use error::TrainError;
pub use settings::Settings;

use beginning::Beginning;
use epochs::Training;
use identity::Identity;

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
pub struct Outcome {
    pub model: PathBuf,
    /// Over all test images.
    pub test: Score,
}

/// Trains, or goes on where the last checkpoint in the directory is, or scores again what is finished. Collective over all ranks.
///
/// # Errors
/// When a setting, the images, the directory or this machine cannot be used, and when another rank has ended: it is named.
pub fn run(settings: &Settings, options: &Options<'_>, out: &mut dyn Write) -> Result<Outcome, TrainError> {
    settings.check()?;

    // 1. Init: find the other ranks. Without any launcher this one is alone.
    let engine = start()?;
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);

    // 2. Pin: every rank computes on processors of its own.
    let n_processors = processors::pin(&engine)?;
    let mut compute = Compute::new(&compute::Config {
        threads: settings.threads.unwrap_or(n_processors),
        batch: settings.batch,
        precision: settings.precision.into(),
        isa: Isa::best(),
    })?;
    let dataset = data::open(&settings.source())?;
    introduce(settings, &dataset, size, out)?;

    // 3. Scale: more ranks make larger steps, and share the epochs out.
    let rate = scale_learning_rate(&engine, settings.learning_rate, ReduceOp::Average);
    let epochs = settings.epochs.div_ceil(size);

    // 4. Wrap: the optimizer will see the gradients of all ranks.
    let rmsprop = RmsProp::new(&rmsprop::Config { rate, decay: settings.decay }, compute.pool().clone());
    let mut optimizer = Wrapped::new(&engine, rmsprop)?;
    optimizer.share(&mut compute);

    // 5. Broadcast: all ranks begin where rank 0 begins.
    let identity = Identity::of(settings, &dataset, size);
    let beginning = Beginning::find(&engine, &identity, settings, options)?;
    beginning.tell(options.dir, epochs, out)?;
    let Beginning { mut weights, accumulators, iterations, epoch, keeper, .. } = beginning;
    optimizer.take(&mut weights)?;
    optimizer.inner().set_state(rmsprop::State { accumulators, iterations });

    let terminal = options.terminal.filter(|_| rank == 0);
    let paper = terminal.map_or(Paper::Log, |columns| Paper::Terminal { columns });
    let mut training =
        Training { engine: &engine, settings, identity, dataset, compute, optimizer, weights, rate, epochs, paper };
    training.train(epoch, iterations, keeper, out)?;
    let outcome = results::save_and_score(&mut training, options.dir, out)?;
    // Nobody leaves while others still speak.
    engine.barrier(SetId::GLOBAL).map_err(TrainError::Ranks)?;
    Ok(outcome)
}

/// As Horovod does, with one difference: where gradients meet in a ring, the order in which an element is added up depends on its place
/// among those it travels with. So every gradient travels alone, and the same seed gives the same weights.
fn start() -> Result<Engine, TrainError> {
    let launch = Launch::from_environment().map_err(StartError::Launch)?;
    let mut settings = corro_collectives::Settings::from_environment().map_err(StartError::Settings)?;
    settings.fusion_threshold = 0;
    settings.autotune.fusion_threshold_fixed = true;
    Ok(Engine::start_with(&launch, &settings, &[])?)
}

/// As the script, behind what it does not say.
fn introduce(settings: &Settings, dataset: &Dataset, size: usize, out: &mut dyn Write) -> Result<(), TrainError> {
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
