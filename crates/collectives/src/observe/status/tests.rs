use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::coordinator::{Agreed, GLOBAL_AREA, Terms};
use crate::dtype::Dtype;
use crate::op::ReduceOp;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tensor(name: &str) -> Tensor {
    let terms = Terms {
        area: GLOBAL_AREA,
        kind: Kind::Allreduce,
        dtype: Dtype::F32,
        op: ReduceOp::Sum,
        prescale: 1.0,
        postscale: 1.0,
        root: 0,
        on_cpu: true,
    };
    let agreed = Agreed { terms, name: name.into(), shape: vec![4], rows: Vec::new() };
    Tensor { agreed: Arc::new(agreed), token: None, splits: Arc::new([]) }
}

fn shared() -> Arc<SharedSteps> {
    Arc::new(SharedSteps::new(std::time::Instant::now()))
}

fn text(status: &mut Status, besides: &Besides<'_>, now: Duration) -> Value {
    let text = text::of(status, status.totals_at(now), besides, now);
    assert!(text.len() < block::PAGE_BYTES, "{} bytes", text.len());
    status.write(besides, now);
    serde_json::from_str(&text).expect("JSON")
}

fn reduce(status: &mut Status, asked: u64, agreed: u64, done: u64) {
    status.pending(1, millis(asked));
    status.begin(Kind::Allreduce, &[tensor("loss")], millis(agreed));
    status.end(&[tensor("loss")], 16, 0, millis(done));
}

#[test]
fn waiting_is_from_asking_until_all_have_asked() {
    let mut status = Status::new(2, 4, shared());
    reduce(&mut status, 10, 40, 45);
    reduce(&mut status, 100, 101, 103);
    let told = text(&mut status, &Besides::default(), millis(200));
    assert_eq!(
        told["totals"],
        json!({"nanos": 200_000_000, "operations": 2, "tensors": 2, "steps": 2, "bytes": 32, "waited": 31_000_000, "worked": 7_000_000})
    );
    assert_eq!((&told["rank"], &told["size"], &told["last"]["name"]), (&json!(2), &json!(4), &json!("loss")));
    assert_eq!(told["last"]["ended"], 97_000_000);
    assert!(told["seq"] == told["end"] && told["waiting"] == Value::Null);
}

#[test]
fn what_is_under_way_counts_and_the_window_moves_on() {
    let mut status = Status::new(0, 2, shared());
    for second in 0..20 {
        reduce(&mut status, second * 1000 + 500, second * 1000 + 600, second * 1000 + 600);
        status.write(&Besides::default(), millis(second * 1000 + 1000));
    }
    status.pending(1, millis(20_000));
    let awaited = Awaited { name: "loss".into(), since: millis(20_000), missing: (1..40).collect() };
    let besides = Besides { pending: Some(("loss", millis(20_000))), awaited: Some(awaited), recording: None };
    let told = text(&mut status, &besides, millis(21_000));
    assert_eq!(told["window"]["nanos"], 10_000_000_000_u64);
    // Nine steps of a tenth of a second, and the second that lasts.
    assert_eq!((&told["window"]["waited"], &told["window"]["steps"]), (&json!(1_900_000_000), &json!(9)));
    assert_eq!(told["totals"]["waited"], 3_000_000_000_u64);
    assert_eq!(told["awaited"]["count"], 39);
    assert_eq!(told["awaited"]["ranks"].as_array().map(Vec::len), Some(16));
    assert_eq!(told["waiting"]["since"], told["awaited"]["since"]);
}

#[test]
fn a_page_holds_the_longest_names() {
    let mut status = Status::new(0, 2, shared());
    let name = "\u{1}".repeat(500);
    status.begin(Kind::Allreduce, &[tensor(&name)], millis(1));
    status.end(&[tensor(&name)], 16, 1, millis(2));
    status.begin(Kind::Allreduce, &[tensor(&name)], millis(1));
    let awaited = Awaited { name: name.clone(), since: millis(3), missing: vec![u32::MAX; 100] };
    let told = text(
        &mut status,
        &Besides { pending: Some((&name, millis(3))), awaited: Some(awaited), recording: Some((u64::MAX, false)) },
        millis(4),
    );
    assert_eq!(told["last"]["name"].as_str().map(|name| name.chars().count()), Some(100));
}

#[test]
fn a_wish_is_taken_when_it_is_whole() {
    use std::os::unix::fs::FileExt;

    let block = Block::create().expect("memory");
    assert_eq!(block.wish(), None);
    let words = |words: [u64; 4]| words.map(u64::to_le_bytes).concat();
    let write = |bytes: Vec<u8>| block.file().write_all_at(&bytes, block::PAGE_BYTES as u64).expect("written");
    write(words([7, 2000, 1 << 20, 0]));
    assert_eq!(block.wish(), None);
    write(words([7, 2000, 1 << 20, 7 ^ 2000 ^ (1 << 20)]));
    assert_eq!(block.wish(), Some(block::Wish { number: 7, millis: 2000, most_bytes: 1 << 20 }));
    assert!(block.file().set_len(1).is_err(), "its size is sealed");
}
