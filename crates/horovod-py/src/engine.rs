//! The engine of this process: start, shutdown, rank information, process sets and timeline. Operations on tensors are
//! in `ops`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corro_base::error_chain;
use corro_collectives::coordinator::SubmitError;
use corro_collectives::elastic::ElasticProcess;
use corro_collectives::settings::TimelineSetting;
use corro_collectives::{Engine, EngineError, Launch, RankInfo, SetId, Settings, StartError};
use pyo3::prelude::*;

use crate::running::{RunningEngine, WaitError, lock, require_running, wait};
use crate::{elastic, errors, gil, ops, tensorflow};

/// Poll interval of a thread that waits for another thread's `init`.
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);

#[pyfunction]
pub fn init(py: Python<'_>, process_sets: Vec<Vec<i64>>) -> PyResult<()> {
    let process_sets: Vec<_> = process_sets.into_iter().map(parse_ranks).collect::<PyResult<_>>()?;
    loop {
        if let Some(engine) = claim_start(py)? {
            return register_sets(py, &engine, &process_sets).map_err(sets_error);
        }
        let started = start_engine(py);
        let (engine, generation) = {
            let mut state = lock();
            state.starting = false;
            let running = state.running.insert(started?);
            (running.engine.clone(), running.generation)
        };
        elastic::on_started(generation);
        ops::on_started();
        tensorflow::on_started(&engine);
        let Err(error) = register_sets(py, &engine, &process_sets) else { return Ok(()) };
        // The next attempt starts from scratch.
        drop(engine);
        shutdown(py);
        // In an elastic job a member has ended meanwhile, and the others ask for another generation.
        if generation == 0 || !matches!(error, WaitError::Failed(EngineError::Failed(_))) {
            return Err(sets_error(error));
        }
    }
}

#[pyfunction]
pub fn shutdown(py: Python<'_>) {
    let running = lock().running.take();
    if let Some(RunningEngine { engine, .. }) = running {
        gil::run_released(py, move || {
            engine.shut_down();
            // Dropped without the GIL: it notifies the other ranks.
            drop(engine);
        });
    }
}

/// Called at interpreter exit.
#[pyfunction]
pub fn at_exit(py: Python<'_>) {
    gil::at_exit(py);
    shutdown(py);
}

/// Called in a forked child. Nothing of the parent is accessed or freed.
#[pyfunction]
pub fn after_fork() {
    gil::after_fork();
    ops::after_fork();
    elastic::after_fork();
    let mut state = lock();
    state.starting = false;
    if let Some(running) = state.running.take() {
        state.parent_launch = Some(running.launch_key.clone());
        std::mem::forget(running);
    }
}

#[pyfunction]
pub fn is_initialized() -> bool {
    lock().running.is_some()
}

#[pyfunction]
pub fn rank() -> PyResult<usize> {
    rank_info(|info| info.rank)
}

#[pyfunction]
pub fn size() -> PyResult<usize> {
    rank_info(|info| info.size)
}

#[pyfunction]
pub fn local_rank() -> PyResult<usize> {
    rank_info(|info| info.local_rank)
}

#[pyfunction]
pub fn local_size() -> PyResult<usize> {
    rank_info(|info| info.local_size)
}

#[pyfunction]
pub fn cross_rank() -> PyResult<usize> {
    rank_info(|info| info.cross_rank)
}

#[pyfunction]
pub fn cross_size() -> PyResult<usize> {
    rank_info(|info| info.cross_size)
}

#[pyfunction]
pub fn is_homogeneous() -> PyResult<bool> {
    Ok(require_running()?.engine.is_homogeneous())
}

#[pyfunction]
pub fn add_process_set(py: Python<'_>, ranks: Vec<i64>) -> PyResult<u32> {
    let engine = require_running()?.engine;
    let ranks = parse_ranks(ranks)?;
    let made = wait(py, &engine, engine.begin_add_set(ranks)).map_err(|error| error.into_pyerr(py))?;
    let set = made.sets.first().map(|set| set.id);
    let set = set.ok_or_else(|| errors::internal_error(py, "the process set was not made"))?;
    // The id may have belonged to a removed set with other members.
    ops::reset_unnamed_count(set);
    Ok(set.0)
}

#[pyfunction]
pub fn remove_process_set(py: Python<'_>, process_set: i64) -> PyResult<bool> {
    let engine = require_running()?.engine;
    let Ok(set) = u32::try_from(process_set) else { return Ok(false) };
    match wait(py, &engine, engine.begin_remove_set(SetId(set))) {
        Ok(_) => Ok(true),
        Err(WaitError::Failed(EngineError::Refused(SubmitError::NotRemovable { .. }))) => Ok(false),
        Err(error) => Err(error.into_pyerr(py)),
    }
}

#[pyfunction]
pub fn process_set_ranks(process_set: i64) -> PyResult<Vec<u32>> {
    let sets = process_sets()?;
    let found = sets.into_iter().find(|(id, _)| i64::from(*id) == process_set);
    found
        .map(|(_, ranks)| ranks)
        .ok_or_else(|| errors::value_error("Process set does not exist or has not been registered."))
}

#[pyfunction]
pub fn process_sets() -> PyResult<Vec<(u32, Vec<u32>)>> {
    Ok(require_running()?.engine.sets().into_iter().map(|(id, ranks)| (id.0, ranks.to_vec())).collect())
}

#[pyfunction]
pub fn start_timeline(py: Python<'_>, path: std::path::PathBuf, mark_cycles: bool) -> PyResult<()> {
    let engine = timeline_engine()?;
    // Only the coordinator sees the operations of all ranks.
    if engine.rank_info().rank != 0 {
        return Ok(());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let started = gil::run_released(py, || engine.timeline().start(&path, mark_cycles, now));
    started.map_err(|error| errors::value_error(error_chain::join(&error)))
}

#[pyfunction]
pub fn stop_timeline(py: Python<'_>) -> PyResult<()> {
    let engine = timeline_engine()?;
    let stopped = gil::run_released(py, || engine.timeline().stop());
    stopped.map(drop).map_err(|error| errors::value_error(error_chain::join(&error)))
}

/// Returns the engine if it runs. Otherwise claims its start for this thread; other threads wait.
fn claim_start(py: Python<'_>) -> PyResult<Option<Arc<Engine>>> {
    loop {
        {
            let mut state = lock();
            if let Some(running) = &state.running {
                return Ok(Some(running.engine.clone()));
            }
            if !state.starting {
                state.starting = true;
                return Ok(None);
            }
        }
        gil::run_released(py, || std::thread::sleep(START_POLL_INTERVAL));
        py.check_signals()?;
    }
}

/// Starts the engine on a thread of its own, so that Ctrl-C works while other ranks are missing. An engine that starts
/// after an interrupt is dropped at once.
fn start_engine(py: Python<'_>) -> PyResult<RunningEngine> {
    let failed = |error: StartError| errors::init_error(&error);
    let process = ElasticProcess::from_environment().map_err(|error| failed(error.into()))?;
    let settings = Settings::from_environment().map_err(|error| failed(error.into()))?;
    let timeline = settings.timeline != TimelineSetting::Off;
    let (launch_key, started) = match process {
        Some(process) => {
            let launch_key = format!("elastic process {}", process.process);
            refuse_forked(&launch_key, &launch_key)?;
            let work = move |interrupted: &AtomicBool| elastic::start_next(&process, &settings, interrupted);
            (launch_key, elastic::on_thread(py, work)?.map(|started| started.map_err(elastic::start_error)))
        }
        None => {
            let launch = Launch::from_environment().map_err(|error| failed(error.into()))?;
            let launch_key = format!("{:?} {:?}", launch.rank_info, launch.rendezvous);
            if launch.rank_info.size > 1 {
                refuse_forked(&launch_key, &format!("rank {}", launch.rank_info.rank))?;
            }
            let work = move |_: &AtomicBool| Engine::start_with(&launch, &settings, &[]);
            (launch_key, elastic::on_thread(py, work)?.map(|engine| Ok((0, engine.map_err(failed)?))))
        }
    };
    let started = started
        .ok_or_else(|| errors::value_error("Horovod initialization failed: internal error, see the panic message"))?;
    let (generation, engine) = started?;
    Ok(RunningEngine { engine: Arc::new(engine), launch_key, timeline, generation })
}

/// An error in a forked child that has inherited the launch key of its parent.
fn refuse_forked(launch_key: &str, parent: &str) -> PyResult<()> {
    if lock().parent_launch.as_deref() != Some(launch_key) {
        return Ok(());
    }
    Err(errors::value_error(format!(
        "Horovod initialization failed: this process was forked from {parent} and has no rank of its own; start ranks \
         with a launcher such as horovodrun, or give a child its own HOROVOD_RANK"
    )))
}

/// Registers the sets that do not exist yet. Collective over all ranks if there are any.
fn register_sets(py: Python<'_>, engine: &Engine, process_sets: &[Vec<u32>]) -> Result<(), WaitError> {
    let missing = missing_sets(engine, process_sets);
    if missing.is_empty() {
        return Ok(());
    }
    wait(py, engine, engine.begin_register_sets(missing)).map(drop)
}

fn sets_error(error: WaitError) -> PyErr {
    match error {
        WaitError::Failed(error) => errors::init_error(&StartError::Sets(error)),
        WaitError::Interrupted(error) => error,
    }
}

/// The sets that do not exist yet, without duplicates and without the global set. In an elastic job, which may be smaller now, only those
/// whose ranks all exist; the same on every rank.
fn missing_sets(engine: &Engine, wanted: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let known = engine.sets();
    let (is_elastic, size) = (elastic::generation() > 0, engine.rank_info().size);
    let mut missing: Vec<Vec<u32>> = Vec::new();
    for ranks in wanted {
        let exists = !is_elastic || ranks.iter().all(|rank| (*rank as usize) < size);
        if exists && !missing.contains(ranks) && !known.iter().any(|(_, known)| **known == **ranks) {
            missing.push(ranks.clone());
        }
    }
    missing
}

fn parse_ranks(ranks: Vec<i64>) -> PyResult<Vec<u32>> {
    let rank = |rank: &i64| {
        u32::try_from(*rank)
            .map_err(|_| errors::value_error(format!("Tried to register process set with invalid rank: {rank}")))
    };
    let mut ranks: Vec<u32> = ranks.iter().map(rank).collect::<PyResult<_>>()?;
    ranks.sort_unstable();
    Ok(ranks)
}

fn timeline_engine() -> PyResult<Arc<Engine>> {
    let running = require_running()?;
    if !running.timeline {
        return Err(errors::value_error("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage."));
    }
    Ok(running.engine)
}

fn rank_info<T>(read: impl FnOnce(&RankInfo) -> T) -> PyResult<T> {
    Ok(read(require_running()?.engine.rank_info()))
}
