//! Jobs whose ranks are the test program itself, using our collectives: an ignored test calls `run_rank`, and
//! `submit_collective` names it.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use corro_collectives::Engine;
use corro_collectives::coordinator::SetId;
use corro_collectives::engine::ops::Reduce;
use serde_json::json;

use super::Site;

/// The straggler.
pub const SLOW_RANK: usize = 2;

/// Runs steps of two reductions each until the gate `go` opens; one rank arrives late, and not at all while `hang` exists.
pub fn run_rank() {
    let Ok(gates) = std::env::var("GATES") else { return };
    let is_open = |gate: &str| PathBuf::from(&gates).join(gate).exists();
    let engine = Engine::start().expect("an engine");
    let rank = engine.rank_info().rank;
    loop {
        sleep(Duration::from_millis(if rank == SLOW_RANK { 60 } else { 2 }));
        let mut gradient = vec![rank as f32; 1000];
        engine.allreduce("gradient", &mut gradient, Reduce::SUM).expect("a sum");
        while rank == SLOW_RANK && is_open("hang") && !is_open("go") {
            sleep(Duration::from_millis(10));
        }
        let mut over = [f32::from(u8::from(rank == 0 && is_open("go")))];
        engine.allreduce("over", &mut over, Reduce::SUM).expect("a sum");
        if over[0] > 0.0 {
            break;
        }
    }
    engine.barrier(SetId::GLOBAL).expect("all come to the end");
}

/// A gang in which one rank fails as Python ranks do: an uncaught error is printed, the engine is shut down at interpreter
/// exit, and the process exits with a code. `CULPRIT` names the rank, `FAILURE` the kind; the others fail as a consequence.
/// Does nothing without them.
pub fn run_failing_rank() {
    let (Ok(culprit), Ok(failure)) = (std::env::var("CULPRIT"), std::env::var("FAILURE")) else { return };
    let is_culprit = std::env::var("HOROVOD_RANK").is_ok_and(|rank| rank == culprit);
    if is_culprit && failure.starts_with("early") {
        eprintln!("ModuleNotFoundError: No module named 'keras'");
        std::process::exit(if failure == "early" { 4 } else { 0 });
    }
    let engine = match Engine::start() {
        Ok(engine) => engine,
        Err(error) => {
            let error = anyhow::Error::from(error);
            eprintln!("ValueError: Horovod initialization failed: {error:#}");
            std::process::exit(1);
        }
    };
    for step in 0.. {
        if is_culprit && step == 3 {
            match failure.as_str() {
                "raise" => {
                    eprintln!("ZeroDivisionError: division by zero");
                    drop(engine);
                    std::process::exit(5);
                }
                "exit" => std::process::exit(6),
                _ => rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                    .expect("a process may kill itself"),
            }
        }
        if let Err(error) = engine.allreduce("gradient", &mut [1.0f32; 1000], Reduce::SUM) {
            eprintln!("HorovodInternalError: {error}");
            drop(engine);
            std::process::exit(1);
        }
    }
}

impl Site {
    /// Submits four ranks on two nodes; `test` is the full name of the test that acts as a rank.
    pub fn submit_collective(&self, name: &str, test: &str) {
        let program = std::env::current_exe().expect("this program");
        let gates = "GATES=$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar";
        let command = format!("{gates} {} --exact {test} --ignored --nocapture", program.display());
        let settings = json!({"customMpiSettings": {"commandLine": command, "processCount": 4}});
        self.submit(name, &self.job_json(2, settings, json!({}))).ok();
    }
}
