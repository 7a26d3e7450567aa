//! The collective engine of a running job, seen from outside: who does what, whom the others wait for, what hangs and a recorded timeline. The ranks are
//! this very program.

mod harness;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use corro_collectives::Engine;
use corro_collectives::coordinator::SetId;
use corro_collectives::engine::calls::Reduce;
use harness::{Ended, IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

const SLOW: usize = 2;

/// One rank: steps of two gradients each, which rank 2 comes late to, until the gate `go` is open. While `hang` is, rank 2 does not come at all.
#[test]
#[ignore = "runs as a rank of the jobs below"]
fn as_a_rank() {
    let Ok(gates) = std::env::var("GATES") else { return };
    let is_open = |gate: &str| PathBuf::from(&gates).join(gate).exists();
    let engine = Engine::start().expect("an engine");
    let rank = engine.place().rank;
    loop {
        sleep(Duration::from_millis(if rank == SLOW { 60 } else { 2 }));
        let mut first = vec![rank as f32; 1000];
        engine.allreduce("gradient.0", &mut first, Reduce::SUM).expect("a sum");
        while rank == SLOW && is_open("hang") && !is_open("go") {
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

fn submit(site: &Site, name: &str) {
    let program = std::env::current_exe().expect("this program");
    let command = format!(
        "GATES=$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar {} --exact as_a_rank --ignored --nocapture",
        program.display()
    );
    let settings = json!({"customMpiSettings": {"commandLine": command, "processCount": 4}});
    site.submit(name, &site.job_json(2, settings, json!({}))).ok();
}

fn top(site: &Site, name: &str, more: &str) -> Ended {
    site.corro(&format!("job top {name} {IN_WORKSPACE} -e cifar {more}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn whom_the_others_wait_for_is_seen() {
    let site = Site::start();
    site.prepare(2);
    submit(&site, "slow");
    site.wait_for_state("slow", &["running"]);
    let mut rows = Vec::new();
    wait_for("the slow rank to be marked", || {
        let told = top(&site, "slow", "-o json");
        rows = if told.code == 0 { told.json().as_array().cloned().unwrap_or_default() } else { Vec::new() };
        rows.len() == 4 && rows.iter().any(|row| row["straggler"] == true)
    });
    for (rank, row) in rows.iter().enumerate() {
        let engine = &row["engines"][0];
        assert_eq!((number(&engine["rank"]), number(&engine["size"])), (rank as f64, 4.0), "{row}");
        assert_eq!(row["straggler"], rank == SLOW, "{row}");
        assert!(number(&engine["totals"]["steps"]) > 1.0 && number(&engine["totals"]["bytes"]) > 4000.0, "{row}");
        assert!(["gradient.0", "over"].contains(&engine["last"]["name"].as_str().expect("a name")), "{row}");
    }
    let share = |rank: usize| number(&rows[rank]["engines"][0]["window"]["waitedMs"]);
    assert!(share(SLOW) < share(0).min(share(1)).min(share(3)) / 2.0, "{rows:?}");
    let table = top(&site, "slow", "--once").ok().stdout;
    assert!(table.contains("COLLECTIVE") && table.contains("\n2*  "), "{table}");
    assert!(table.ends_with("The others wait for rank 2.\n"), "{table}");

    site.open_gate("go");
    assert_eq!(site.wait_for_end("slow")["executionState"], "succeeded", "{}", site.log("slow", "stderr.txt"));
}
