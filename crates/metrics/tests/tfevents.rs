//! Event files written by TensorFlow 2: `tensors` with the v2 summary API, `values` with the v1 writer.

use corro_metrics::Curves;
use corro_metrics::tfevents::EventFileReader;

#[track_caller]
fn check(file: &[u8], expected: &[&str]) {
    let (mut events, mut curves) = (EventFileReader::default(), Curves::default());
    events.push(file, &mut curves);
    let all = curves.iter().flat_map(|(key, curve)| {
        let point = move |(step, value): (f64, f64)| format!("{} {step}={value}", key.name);
        assert!(curve.points().iter().all(|point| point.time.is_some()), "every point has a time");
        curve.points().iter().map(|kept| (kept.step, kept.value)).map(point)
    });
    assert_eq!(all.collect::<Vec<_>>(), expected);
    assert!(!events.damaged);
}

#[test]
fn files_written_by_tensorflow_are_read() {
    check(include_bytes!("tfevents/tensors.tfevents"), &["loss 0=3", "loss 1=2", "loss 2=1"]);
    check(include_bytes!("tfevents/values.tfevents"), &["acc 0=0", "acc 1=0.5", "acc 2=1"]);
}
