//! The collective engine of a running job, inspected from outside: current operation of each rank, stragglers, stalls and a
//! recorded timeline. The ranks are this test program.

mod harness;

use harness::collective::{SLOW_RANK as SLOW, run_rank};
use harness::{CommandOutput, IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

#[test]
#[ignore = "runs as a rank of the job below"]
fn rank_process() {
    run_rank();
}

fn top(site: &Site, name: &str, more: &str) -> CommandOutput {
    site.corro(&format!("job top {name} {IN_WORKSPACE} -e cifar {more}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn the_straggler_is_shown() {
    let site = Site::start();
    site.prepare(2);
    site.submit_collective("slow", "rank_process");
    site.wait_for_state("slow", &["running"]);
    let mut rows = Vec::new();
    wait_for("the slow rank to be marked", || {
        let output = top(&site, "slow", "-o json");
        rows = if output.code == 0 { output.json().as_array().cloned().unwrap_or_default() } else { Vec::new() };
        let begun = |row: &Value| number(&row["engines"][0]["totals"]["steps"]) > 1.0;
        rows.len() == 4 && rows.iter().all(begun) && rows.iter().any(|row| row["straggler"] == true)
    });
    for (rank, row) in rows.iter().enumerate() {
        let engine = &row["engines"][0];
        assert_eq!((number(&engine["rank"]), number(&engine["size"])), (rank as f64, 4.0), "{row}");
        assert_eq!(row["straggler"], rank == SLOW, "{row}");
        assert!(number(&engine["totals"]["steps"]) > 1.0 && number(&engine["totals"]["bytes"]) > 4000.0, "{row}");
        assert!(["gradient", "over"].contains(&engine["last"]["name"].as_str().expect("a name")), "{row}");
    }
    let share = |rank: usize| number(&rows[rank]["engines"][0]["window"]["waitedMs"]);
    assert!(share(SLOW) < share(0).min(share(1)).min(share(3)) / 2.0, "{rows:?}");
    let table = top(&site, "slow", "--once").ok().stdout;
    assert!(table.contains("COLLECTIVE") && table.contains("\n2*  "), "{table}");
    assert!(table.ends_with("The others wait for rank 2.\n"), "{table}");

    // All ranks are on the trace. On a busy machine other ranks are late too, so it is recorded again until one trace shows the
    // straggler.
    let at = format!("{IN_WORKSPACE} -e cifar");
    let mut trace = Value::Null;
    wait_for("a recording in which the slow rank waits half as long as any other", || {
        let recorded = site.corro(&format!("job timeline slow {at} --seconds 1.5 --file trace.json")).ok();
        assert!(recorded.stderr.contains(" spans of 4 ranks in 1.5 s."), "{}", recorded.stderr);
        let text = std::fs::read_to_string(site.path().join("trace.json")).expect("a file");
        trace = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&trace["state"], number(&trace["dropped"])), (&json!("done"), 0.0));
        let events = trace["traceEvents"].as_array().expect("events");
        let spent = |rank: usize, name: &str| -> f64 {
            let own = events.iter().filter(|event| number(&event["pid"]) == rank as f64 && event["name"] == name);
            own.map(|event| number(&event["dur"])).sum()
        };
        for rank in 0..4 {
            assert!(spent(rank, "ALLREDUCE") > 0.0, "rank {rank}");
        }
        let waits = [0, 1, SLOW, 3].map(|rank| spent(rank, "NEGOTIATE_ALLREDUCE"));
        waits[2] < waits[0].min(waits[1]).min(waits[3]) / 2.0
    });
    let again = site.corro(&format!("job timeline slow {at} --last")).ok().stdout;
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON"), trace);

    // Rank 2 stalls: it must be named as the cause.
    site.open_gate("hang");
    let mut said = String::new();
    wait_for("the missing rank to be named", || {
        said = site.corro(&format!("job why slow {at}")).ok().stdout;
        said.contains("rank 2 on node tvm-")
    });
    assert!(said.contains("has not reached \"over\", for which the others have waited 1"), "{said}");

    site.open_gate("go");
    assert_eq!(site.wait_for_end("slow")["executionState"], "succeeded", "{}", site.log("slow", "stderr.txt"));
    site.corro(&format!("job timeline slow {at}")).fails(1, &["only a running job can be recorded"]);
}

/// Ranks of one host step in shared memory, without the engine's operations.
#[test]
fn steps_in_shared_memory_are_counted() {
    let site = Site::start();
    site.prepare(1);
    let settings = json!({"epochs": 100_000, "batch": 2, "synthetic": {"train": 400, "test": 4}, "threads": 1});
    site.write("settings.json", settings.to_string());
    let (corro, settings) = (env!("CARGO_BIN_EXE_corro"), site.path().join("settings.json"));
    let command = format!("{corro} train {} --dir $AZ_BATCHAI_JOB_TEMP_DIR/out", settings.display());
    let ranks = json!({"customMpiSettings": {"commandLine": command, "processCount": 2}});
    site.submit("training", &site.job_json(1, ranks, json!({}))).ok();
    site.wait_for_state("training", &["running"]);
    let mut rows = Vec::new();
    wait_for("steps to be counted", || {
        let output = top(&site, "training", "-o json");
        rows = if output.code == 0 { output.json().as_array().cloned().unwrap_or_default() } else { Vec::new() };
        // One epoch has 100 steps per rank; reductions once per epoch do not reach that number.
        rows.len() == 2 && rows.iter().all(|row| number(&row["engines"][0]["totals"]["steps"]) > 20.0)
    });
    for row in &rows {
        let engine = &row["engines"][0];
        assert!(number(&engine["totals"]["bytes"]) > 20.0 * 4e6, "all gradients of every step: {row}");
        assert!(number(&engine["totals"]["waitedMs"]) > 0.0, "{row}");
    }
    let at = format!("{IN_WORKSPACE} -e cifar");
    let table = top(&site, "training", "--once").ok().stdout;
    assert!(table.contains("gradients (shared memory)"), "{table}");
    site.corro(&format!("job timeline training {at} --seconds 1.5 --file trace.json")).ok();
    let trace = std::fs::read_to_string(site.path().join("trace.json")).expect("a file");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    for rank in 0..2 {
        let count = |name: &str| {
            events.iter().filter(|event| number(&event["pid"]) == f64::from(rank) && event["name"] == name).count()
        };
        let counts = ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "SHARED_MEMORY_STEP"].map(count);
        assert!(counts.iter().all(|count| *count >= 12), "a step has 12 gradients, rank {rank}: {counts:?}");
    }
    site.corro(&format!("batchai job terminate {at} -n training -y")).ok();
    site.wait_for_end("training");
}
