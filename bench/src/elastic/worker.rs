//! Our rank of the benchmark: sums a gradient step by step, in an elastic training or in one of fixed size. A mode of this binary. The done and
//! change flags travel with the gradient, so that all ranks decide alike.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use corro_collectives::elastic::{ElasticProcess, ElasticStartError, PlaceError, start_generation};
use corro_collectives::{Engine, EngineError, Reduce, Settings};

use super::events::{Event, EventLog, Kind, now_ns};

/// Hidden subcommand of this binary.
pub const SUBCOMMAND: &str = "elastic-rank";
/// Floats of the gradient: 1 MB.
const GRADIENT_LENGTH: usize = 256 * 1024;
/// Steps of one measured pace.
const STEPS_PER_PACE: u32 = 50;

/// `elastic-rank EVENTS`.
pub fn run(arguments: &[String]) -> ExitCode {
    let [events] = arguments else { return ExitCode::from(2) };
    match train_all(&EventLog(events.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn train_all(log: &EventLog) -> Result<()> {
    let Some(process) = ElasticProcess::from_environment()? else {
        let engine = Engine::start()?;
        return train(&engine, log, 0, &AtomicU64::new(0)).map(drop).context("a rank of fixed size");
    };
    let settings = Settings::from_environment()?;
    // The last generation whose members shall ask again.
    let changed = Arc::new(AtomicU64::new(0));
    let mut generation = 0;
    log.append(&event(Kind::Ready, generation, None, now_ns()))?;
    loop {
        let engine = match start_generation(&process, generation, &settings, &|| false, &|_| {}) {
            Ok((next, engine)) => {
                generation = next;
                engine
            }
            Err(ElasticStartError::Place(PlaceError::Dismissed { .. })) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        watch_updates(&process, generation, &changed);
        // Otherwise a member has died, or hosts have changed.
        if let Ok(true) = train(&engine, log, generation, &changed) {
            return Ok(());
        }
    }
}

fn watch_updates(process: &ElasticProcess, generation: u64, changed: &Arc<AtomicU64>) {
    let (process, changed) = (process.clone(), Arc::clone(changed));
    std::thread::spawn(move || {
        while let Ok(update) = process.wait_for_update(generation, Duration::from_secs(10)) {
            if update.is_some() {
                changed.fetch_max(generation, Ordering::Relaxed);
                return;
            }
            if changed.load(Ordering::Relaxed) > generation {
                return;
            }
        }
    });
}

/// Returns true when the benchmark has ended, false when the next generation follows.
fn train(engine: &Engine, log: &EventLog, generation: u64, changed: &AtomicU64) -> Result<bool, EngineError> {
    let stop = log.stop_file();
    let info = engine.rank_info();
    let report = |kind, ns| {
        if let Err(error) = log.append(&event(kind, generation, Some((info.rank, info.size)), ns)) {
            eprintln!("{error:#}");
        }
    };
    let mut gradient = vec![0f32; GRADIENT_LENGTH];
    for pace in 0.. {
        let began = Instant::now();
        for step in 0..STEPS_PER_PACE {
            gradient.fill(0.0);
            // The file system is asked once per pace only.
            gradient[0] = if step == 0 && stop.exists() { 1.0 } else { 0.0 };
            gradient[1] = if generation > 0 && changed.load(Ordering::Relaxed) >= generation { 1.0 } else { 0.0 };
            engine.allreduce("gradient", &mut gradient, Reduce::SUM)?;
            if pace == 0 && step == 0 {
                report(Kind::Step, now_ns());
            }
            if gradient[0] > 0.0 || gradient[1] > 0.0 {
                return Ok(gradient[0] > 0.0);
            }
        }
        if info.rank == 0 {
            report(Kind::Pace, (began.elapsed() / STEPS_PER_PACE).as_nanos() as u64);
        }
    }
    Ok(true)
}

fn event(kind: Kind, generation: u64, rank: Option<(usize, usize)>, ns: u64) -> Event {
    let (rank, size) = rank.unwrap_or_default();
    Event { kind, generation, rank, size, pid: std::process::id(), ns }
}
