//! A rank with the real engine: sums gradients step by step, and goes on in the next generation after a death or a change of hosts. Checks
//! each sum, and that no generation begins before the step that the ranks had agreed on.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use corro_collectives::elastic::{ElasticProcess, ElasticStartError, PlaceError, start_generation};
use corro_collectives::{Engine, EngineError, Reduce, ReduceOp, Settings};

const MAX: Reduce = Reduce { op: ReduceOp::Max, ..Reduce::SUM };
const N_GRADIENTS: usize = 3;

/// Does nothing in a process that is not part of an elastic training.
pub fn run() {
    let Ok(Some(process)) = ElasticProcess::from_environment() else { return };
    let settings = Settings::from_environment().expect("good settings");
    let (mut generation, mut step) = (0, 0.0);
    loop {
        let engine = match start_generation(&process, generation, &settings, &|| false, &|_| {}) {
            Ok((next, engine)) => {
                generation = next;
                engine
            }
            Err(ElasticStartError::Place(PlaceError::Dismissed { .. })) => return,
            Err(error) => {
                eprintln!("{:#}", anyhow::Error::from(error));
                std::process::exit(1);
            }
        };
        // An error is the death of a rank: the survivors ask for the next generation.
        if train(&engine, &process, generation, &mut step).unwrap_or(false) {
            return;
        }
    }
}

/// Returns true when the training is complete, and false when hosts have changed.
fn train(engine: &Engine, process: &ElasticProcess, generation: u64, step: &mut f64) -> Result<bool, EngineError> {
    let info = engine.rank_info();
    let mut agreed = [*step];
    engine.allreduce("step", &mut agreed, MAX)?;
    *step = agreed[0];
    let host = std::env::var("HOROVOD_HOSTNAME").expect("the launcher sets it");
    let pid = std::process::id();
    append("places", &format!("{generation} {} {} {} {pid} {host} 0", info.rank, info.size, process.process));
    append("steps", &format!("{generation} {}", *step));
    loop {
        for gradient in 0..N_GRADIENTS {
            let mut values = vec![1.0f32; 1000 << gradient];
            engine.allreduce(&format!("gradient {gradient}"), &mut values, Reduce::SUM)?;
            assert!(values.iter().all(|value| *value == info.size as f32), "a wrong sum of {} ranks", info.size);
        }
        let update = process.wait_for_update(generation, Duration::ZERO).ok().flatten();
        let mut flags = [f32::from(u8::from(Path::new("done").exists())), f32::from(u8::from(update.is_some()))];
        engine.allreduce("flags", &mut flags, MAX)?;
        *step += 1.0;
        if flags.iter().any(|flag| *flag > 0.0) {
            return Ok(flags[0] > 0.0);
        }
    }
}

fn append(file: &str, line: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("it can be opened");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}
