//! Tests of timeline files, parsed as a viewer would: names, nesting, order, errors and dropped events.

use serde_json::Value;

use super::*;

fn read(path: &Path) -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("valid JSON")
}

/// Records one allreduce of one tensor, as the engine does.
fn record_allreduce(timeline: &Timeline, name: &str) {
    timeline.mark_cycle();
    timeline.negotiate_start(name, "ALLREDUCE");
    timeline.rank_ready(name, 0);
    timeline.rank_ready(name, 1);
    timeline.negotiate_end(name);
    timeline.operation_start(name, "ALLREDUCE");
    timeline.activity_start(name, "MEMCPY_IN_FUSION_BUFFER");
    timeline.activity_end(name);
    timeline.operation_end(name, Dtype::F32, &[2, 3]);
}

fn started(path: &Path, marks_cycles: bool) -> Timeline {
    let timeline = Timeline::new();
    timeline.start(path, marks_cycles, 1_700_000_000_000_000).unwrap();
    timeline
}

#[test]
fn a_tensor_has_negotiation_operation_and_activity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = started(&path, true);
    record_allreduce(&timeline, "allreduce.test_allreduce");
    record_allreduce(&timeline, "quoted \"\\\n name");
    assert_eq!(timeline.stop().unwrap(), Some(ClosedTimeline { path: path.clone(), n_dropped: 0 }));
    let events = read(&path);
    let brief: Vec<String> = events
        .iter()
        .map(|event| {
            let name = event["name"].as_str().unwrap_or("-");
            format!("{} {} {name}", event["pid"], event["ph"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "0 M process_name",
        "0 M process_sort_index",
        "0 i CYCLE_START",
        "1 M process_name",
        "1 M process_sort_index",
        "1 B NEGOTIATE_ALLREDUCE",
        "1 X 0",
        "1 X 1",
        "1 E -",
        "1 B ALLREDUCE",
        "1 B MEMCPY_IN_FUSION_BUFFER",
        "1 E -",
        "1 E -",
        "0 i CYCLE_START",
        "2 M process_name",
    ];
    assert_eq!(brief[..expected.len()], expected);
    assert_eq!(events[0]["args"]["start_time_since_epoch_in_micros"], 1_700_000_000_000_000u64);
    assert_eq!(events[3]["args"]["name"], "allreduce.test_allreduce");
    assert_eq!(events[12]["args"], serde_json::json!({"dtype": "float32", "shape": "[2, 3]"}));
    assert_eq!(events[14]["args"]["name"], "quoted \"\\\n name");
    let times: Vec<u64> = events.iter().filter_map(|event| event["ts"].as_u64()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn the_file_is_valid_json_after_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = started(&path, false);
    for n_wanted in 3..20 {
        timeline.negotiate_start(&format!("tensor {n_wanted}"), "BROADCAST");
        let deadline = Instant::now() + std::time::Duration::from_secs(30);
        // Read until the writer is idle: during a write the kernel shows the new bytes before the new length.
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            let events: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
            if events.len() >= 2 + 3 * (n_wanted - 2) {
                break;
            }
            assert!(Instant::now() < deadline, "the event is not written, or the file not whole: {text}");
            thread::yield_now();
        }
    }
}

#[test]
fn a_timeline_can_be_stopped_and_started_with_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["1", "2", "3"].map(|name| folder.path().join(name));
    let timeline = started(&first, false);
    record_allreduce(&timeline, "a");
    timeline.start(&first, false, 0).unwrap();
    record_allreduce(&timeline, "b");
    timeline.stop().unwrap();
    record_allreduce(&timeline, "lost");
    assert_eq!(timeline.stop().unwrap(), None);
    timeline.start(&second, false, 0).unwrap();
    record_allreduce(&timeline, "c");
    timeline.start(&third, false, 0).unwrap();
    record_allreduce(&timeline, "d");
    drop(timeline);
    let names = |path: &Path| -> Vec<String> {
        let named = read(path).into_iter().filter_map(|event| event["args"]["name"].as_str().map(str::to_owned));
        named.collect()
    };
    assert_eq!(names(&first), ["a", "b"], "starting twice is harmless");
    assert_eq!(names(&second), ["c"]);
    assert_eq!(names(&third), ["d"]);
}

#[test]
fn cycles_are_marked_only_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = started(&path, false);
    timeline.mark_cycle();
    timeline.stop().unwrap();
    assert_eq!(read(&path).len(), 2);
}

#[test]
fn a_file_that_cannot_be_created_is_named_and_leaves_the_timeline_off() {
    let timeline = Timeline::new();
    let error = timeline.start(Path::new("/nowhere/at/all.json"), false, 0).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
    assert!(!timeline.is_on());
}

#[test]
fn a_full_disk_is_reported_by_stop() {
    let timeline = started(Path::new("/dev/full"), false);
    for _ in 0..100 {
        record_allreduce(&timeline, "a");
    }
    let error = timeline.stop().unwrap_err();
    assert!(matches!(error, TimelineError::Write { .. }), "{error:?}");
}

#[test]
fn dropped_events_are_counted_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let timeline = Timeline::new();
    // A queue of capacity 0 accepts an event only while the writer waits for one.
    timeline.start_with(&path, false, 0, 0).unwrap();
    for _ in 0..1000 {
        record_allreduce(&timeline, "a");
    }
    let n_dropped = timeline.stop().unwrap().unwrap().n_dropped;
    let events = read(&path);
    let last = events.last().unwrap();
    assert!(n_dropped > 0);
    assert_eq!((last["name"].as_str(), last["args"]["count"].as_u64()), (Some("EVENTS_DROPPED"), Some(n_dropped)));
    assert_nested(&events);
}

/// Checks that begin and end records are balanced.
fn assert_nested(events: &[Value]) {
    let mut depth = std::collections::HashMap::new();
    for event in events {
        let depth = depth.entry(event["pid"].as_u64().unwrap()).or_insert(0i32);
        match event["ph"].as_str().unwrap() {
            "B" => *depth += 1,
            "E" => *depth -= 1,
            _ => {}
        }
        assert!((0..=2).contains(depth), "{event}");
    }
}

proptest::proptest! {
    #[test]
    fn begin_and_end_stay_balanced_whatever_is_dropped(kept: [bool; 27]) {
        let mut trace = chrome_trace::Trace::default();
        for micros in 0..27 {
            let kind = match micros % 9 {
                0 => EventKind::NegotiateStart("ALLREDUCE"),
                1 | 2 => EventKind::RankReady(1),
                3 => EventKind::NegotiateEnd,
                4 => EventKind::OperationStart("ALLREDUCE"),
                5 => EventKind::ActivityStart("MEMCPY_IN_FUSION_BUFFER"),
                6 => EventKind::ActivityEnd,
                7 => EventKind::OperationEnd(Dtype::F32, vec![]),
                _ => EventKind::Cycle,
            };
            if kept[micros as usize] {
                trace.add(Event { micros, name: "a".to_owned(), kind });
            }
        }
        let text = format!("[{}{}]", chrome_trace::file_header(0), trace.out);
        let events: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_nested(&events);
    }
}
