//! The training of one process of an elastic job, whose ranks change while it runs. The ranks of each generation share
//! the images of an epoch; the learning rate follows their number. All have the whole state, so nothing is lost with a
//! rank but the batch in flight: the others go on from the last completed step, and a new process gets the state of the
//! rank that is ahead. The same seed and the same history of sizes give the same weights.
//!
//! [`state`] is what survives a generation, [`steps`] trains in one, [`update_watch`] learns of announced changes.

mod state;
mod steps;
mod update_watch;

use std::io::Write;

use corro_base::error_chain;
use corro_collectives::affinity::AllowedCores;
use corro_collectives::elastic::{ElasticProcess, start_generation};
use corro_collectives::optimizer::scale_learning_rate;
use corro_collectives::{Engine, ReduceOp, SetId};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::epochs::Training;
use super::resume::StartState;
use super::run_dir::RunDir;
use super::run_fingerprint::RunFingerprint;
use super::{
    Options, Settings, TrainError, TrainingResult, cpu_pinning, engine_settings, print_dataset, print_source, results,
};
use crate::compute::{self, Compute, Isa};
use crate::data::{self, Dataset};
use crate::distributed::RankOptimizer;
use crate::network::Score;
use crate::report::progress::ProgressOutput;
use crate::rmsprop::{self, RmsProp};

use state::{Position, State};
use steps::StepsEnd;
use update_watch::UpdateWatch;

/// Failed generations in a row without a completed step. More have another reason than the end of a rank.
const MAX_FAILURES_WITHOUT_STEP: u32 = 10;

/// What a process keeps from one generation to the next.
struct Memory {
    /// `None` in a process that has just started, and after a state was received partly.
    state: Option<State>,
    /// Only on rank 0.
    run_dir: Option<RunDir>,
    /// Score of this process's images of an epoch.
    seen: (usize, Score),
}

/// Trains in generation after generation, until the training is complete.
pub fn run(
    process: &ElasticProcess,
    settings: &Settings,
    options: &Options<'_>,
    out: &mut dyn Write,
) -> Result<TrainingResult, TrainError> {
    // Before the process asks for its place, so that the others do not wait for it.
    let dataset = data::open(&settings.source())?;
    let engine_settings = engine_settings()?;
    let cores = AllowedCores::of_current_thread();
    print_source(settings, out)?;
    print_dataset(settings, &dataset, out)?;
    let mut memory = Memory { state: None, run_dir: None, seen: (0, Score::default()) };
    let (mut generation, mut n_failures) = (0, 0);
    loop {
        let (next, engine) = start_generation(process, generation, &engine_settings, &|| false, &|_| {})?;
        generation = next;
        let before = memory.state.as_ref().map(|state| state.position);
        let watch = (engine.rank_info().rank == 0).then(|| UpdateWatch::start(process, generation));
        let ended =
            train_generation(&engine, generation, settings, options, &dataset, &mut memory, watch.as_ref(), out);
        // The next generation divides the cores anew.
        unpin(&cores)?;
        let has_progress = memory.state.as_ref().map(|state| state.position) > before;
        n_failures = if has_progress { 0 } else { n_failures + 1 };
        match ended {
            Ok(Some(result)) => return Ok(result),
            Ok(None) => writeln!(out, "Generation {generation} has ended, because ranks are added or removed")?,
            Err(error) if error.is_rank_failure() && n_failures < MAX_FAILURES_WITHOUT_STEP => {
                writeln!(out, "Generation {generation} has ended: {}", error_chain::join(&error))?;
            }
            Err(error) => return Err(error),
        }
        engine.shut_down();
    }
}

/// Trains in one generation. `None` when the launcher wants another one. Collective over its ranks.
#[expect(clippy::too_many_arguments, reason = "called once")]
fn train_generation(
    engine: &Engine,
    generation: u64,
    settings: &Settings,
    options: &Options<'_>,
    dataset: &Dataset,
    memory: &mut Memory,
    watch: Option<&UpdateWatch>,
    out: &mut dyn Write,
) -> Result<Option<TrainingResult>, TrainError> {
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);
    let n_cpus = cpu_pinning::pin(engine)?;
    let compute = Compute::new(&compute::Config {
        threads: settings.threads.unwrap_or(n_cpus),
        batch: settings.batch,
        precision: settings.precision.into(),
        isa: Isa::best(),
    })?;
    let rate = scale_learning_rate(engine, settings.learning_rate, ReduceOp::Average);
    let rmsprop = RmsProp::new(&rmsprop::Config { rate, decay: settings.decay }, compute.pool().clone());
    let optimizer = RankOptimizer::replicated(engine, rmsprop)?;
    let fingerprint = RunFingerprint::new(settings, dataset, 0);
    if !state::synchronize(engine, &mut memory.state)? {
        let start_state = StartState::load(engine, &fingerprint, settings, options)?;
        start_state.report(options.dir, settings.epochs, out)?;
        let StartState { weights, accumulators, iterations, epoch, run_dir, .. } = start_state;
        memory.run_dir = run_dir;
        memory.state = Some(State { weights, accumulators, position: Position { iterations, epoch, image: 0 } });
    }
    let position = memory.state.as_ref().expect("loaded or received").position;
    if rank != 0 {
        memory.run_dir = None;
    } else if memory.run_dir.is_none() {
        memory.run_dir = Some(RunDir::take_over(settings, options, position.epoch)?);
    }
    let Position { iterations, epoch, .. } = position;
    writeln!(
        out,
        "Generation {generation}: {size} ranks with {size} times the learning rate, from step {iterations} in epoch {}",
        epoch + 1
    )?;
    let terminal = options.terminal.filter(|_| rank == 0);
    let output = terminal.map_or(ProgressOutput::Log, |columns| ProgressOutput::Terminal { columns });
    let State { weights, accumulators, mut position } = memory.state.take().expect("it is there");
    let (dataset, epochs) = (dataset.clone(), settings.epochs);
    let mut training =
        Training { engine, settings, fingerprint, dataset, compute, optimizer, weights, rate, epochs, output };
    training.optimizer.inner().set_state(rmsprop::State { accumulators, iterations });
    let ended = training.train_shared(&mut position, memory, watch, options, out);
    let result = match ended {
        Ok(StepsEnd::Complete) => {
            let result = results::save_and_score(&mut training, options.dir, out);
            // No rank may leave while others still communicate.
            result.and_then(|result| {
                engine.barrier(SetId::GLOBAL).map_err(TrainError::Ranks)?;
                Ok(Some(result))
            })
        }
        Ok(StepsEnd::Changed) => Ok(None),
        Err(error) => Err(error),
    };
    let accumulators = training.optimizer.inner().state().accumulators.clone();
    memory.state = Some(State { weights: training.weights, accumulators, position });
    result
}

/// Allows this thread the cores that it had before it was pinned.
fn unpin(cores: &AllowedCores) -> Result<(), TrainError> {
    let mut set = CpuSet::new();
    cores.allowed.iter().for_each(|core| set.set(usize::from(*core)));
    sched_setaffinity(None, &set).map_err(|error| TrainError::Pin(error.into()))
}
