//! Tests of the status: waiting times, sliding window, page size, recording requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::coordinator::{FusionKey, GLOBAL_GENERATION, Response};
use crate::dtype::Dtype;
use crate::op::ReduceOp;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tensor(name: &str) -> NegotiatedTensor {
    let key = FusionKey {
        generation: GLOBAL_GENERATION,
        kind: Kind::Allreduce,
        dtype: Dtype::F32,
        op: ReduceOp::Sum,
        prescale: 1.0,
        postscale: 1.0,
        root: 0,
        on_cpu: true,
    };
    let response = Response { key, name: name.into(), shape: vec![4], rows: Vec::new() };
    NegotiatedTensor { response: Arc::new(response), request_id: None, splits: Arc::new([]) }
}

fn shared() -> Arc<ShmStepStats> {
    Arc::new(ShmStepStats::new(std::time::Instant::now()))
}

fn json(status: &mut EngineStatus, extras: &StatusExtras<'_>, now: Duration) -> Value {
    let json = json::render(status, status.totals_at(now), extras, now);
    assert!(json.len() < status_memfd::PAGE_BYTES, "{} bytes", json.len());
    status.write(extras, now);
    serde_json::from_str(&json).expect("JSON")
}

fn reduce(status: &mut EngineStatus, requested: u64, ready: u64, done: u64) {
    status.set_pending(1, millis(requested));
    status.begin(Kind::Allreduce, &[tensor("loss")], millis(ready));
    status.end(&[tensor("loss")], 16, 0, millis(done));
}

#[test]
fn waiting_lasts_from_the_request_to_the_start_of_the_operation() {
    let mut status = EngineStatus::new(2, 4, shared());
    reduce(&mut status, 10, 40, 45);
    reduce(&mut status, 100, 101, 103);
    let status_json = json(&mut status, &StatusExtras::default(), millis(200));
    assert_eq!(
        status_json["totals"],
        json!({"nanos": 200_000_000, "operations": 2, "tensors": 2, "steps": 2, "bytes": 32, "waited": 31_000_000, "worked": 7_000_000})
    );
    assert_eq!(
        (&status_json["rank"], &status_json["size"], &status_json["last"]["name"]),
        (&json!(2), &json!(4), &json!("loss"))
    );
    assert_eq!(status_json["last"]["ended"], 97_000_000);
    assert!(status_json["seq"] == status_json["end"] && status_json["waiting"] == Value::Null);
}

#[test]
fn running_intervals_count_and_the_window_slides() {
    let mut status = EngineStatus::new(0, 2, shared());
    for second in 0..20 {
        reduce(&mut status, second * 1000 + 500, second * 1000 + 600, second * 1000 + 600);
        status.write(&StatusExtras::default(), millis(second * 1000 + 1000));
    }
    status.set_pending(1, millis(20_000));
    let oldest_incomplete = IncompleteOp { name: "loss".into(), since: millis(20_000), missing: (1..40).collect() };
    let extras = StatusExtras {
        pending: Some(("loss", millis(20_000))),
        oldest_incomplete: Some(oldest_incomplete),
        recording: None,
    };
    let status_json = json(&mut status, &extras, millis(21_000));
    assert_eq!(status_json["window"]["nanos"], 10_000_000_000_u64);
    // Nine steps that waited 0.1 s each, and the wait of 1 s that continues.
    assert_eq!((&status_json["window"]["waited"], &status_json["window"]["steps"]), (&json!(1_900_000_000), &json!(9)));
    assert_eq!(status_json["totals"]["waited"], 3_000_000_000_u64);
    assert_eq!(status_json["awaited"]["count"], 39);
    assert_eq!(status_json["awaited"]["ranks"].as_array().map(Vec::len), Some(16));
    assert_eq!(status_json["waiting"]["since"], status_json["awaited"]["since"]);
}

#[test]
fn the_longest_names_fit_into_a_page() {
    let mut status = EngineStatus::new(0, 2, shared());
    let name = "\u{1}".repeat(500);
    status.begin(Kind::Allreduce, &[tensor(&name)], millis(1));
    status.end(&[tensor(&name)], 16, 1, millis(2));
    status.begin(Kind::Allreduce, &[tensor(&name)], millis(1));
    let oldest_incomplete = IncompleteOp { name: name.clone(), since: millis(3), missing: vec![u32::MAX; 100] };
    let status_json = json(
        &mut status,
        &StatusExtras {
            pending: Some((&name, millis(3))),
            oldest_incomplete: Some(oldest_incomplete),
            recording: Some((u64::MAX, false)),
        },
        millis(4),
    );
    assert_eq!(status_json["last"]["name"].as_str().map(|name| name.chars().count()), Some(100));
}

#[test]
fn a_record_request_needs_a_valid_checksum() {
    use std::os::unix::fs::FileExt;

    let status_memfd = StatusMemfd::create().expect("memory");
    assert_eq!(status_memfd.record_request(), None);
    let words = |words: [u64; 4]| words.map(u64::to_le_bytes).concat();
    let write =
        |bytes: Vec<u8>| status_memfd.file().write_all_at(&bytes, status_memfd::PAGE_BYTES as u64).expect("written");
    write(words([7, 2000, 1 << 20, 0]));
    assert_eq!(status_memfd.record_request(), None);
    write(words([7, 2000, 1 << 20, 7 ^ 2000 ^ (1 << 20)]));
    assert_eq!(
        status_memfd.record_request(),
        Some(status_memfd::RecordRequest { number: 7, millis: 2000, max_bytes: 1 << 20 })
    );
    assert!(status_memfd.file().set_len(1).is_err(), "its size is sealed");
}
