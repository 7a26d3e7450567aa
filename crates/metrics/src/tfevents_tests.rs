//! Hand-made event files: complete, truncated and corrupted. `tests/tfevents.rs` reads files written by TensorFlow.

use super::*;
use proptest::prelude::*;

fn field(number: u8, wire: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3) | wire];
    if wire == 2 {
        out.push(u8::try_from(body.len()).expect("short"));
    }
    out.extend_from_slice(body);
    out
}

fn event(step: u8, value: &[u8]) -> Vec<u8> {
    let summary = field(5, 2, &field(1, 2, value));
    [field(1, 1, &1_700_000_000.5_f64.to_le_bytes()), field(2, 0, &[step]), summary].concat()
}

fn record(body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u64).to_le_bytes();
    let sum = |bytes: &[u8]| mask_crc(crc32c(bytes)).to_le_bytes();
    [&len[..], &sum(&len), body, &sum(body)].concat()
}

fn simple(tag: &str, value: f32) -> Vec<u8> {
    [field(1, 2, tag.as_bytes()), field(2, 5, &value.to_le_bytes())].concat()
}

/// Renders each scalar as `tag step=value`.
fn read(events: &mut EventFileReader, pieces: &[&[u8]]) -> Vec<String> {
    let mut curves = Curves::default();
    pieces.iter().for_each(|piece| events.push(piece, &mut curves));
    let all = curves.iter().flat_map(|(key, curve)| {
        curve.points().iter().map(move |point| format!("{} {}={}", key.name, point.step, point.value))
    });
    all.collect()
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn simple_values_and_one_element_tensors_are_scalars() {
    let version = record(&[field(1, 1, &0_f64.to_le_bytes()), field(3, 2, b"brain.Event:2")].concat());
    let tensor = |body: Vec<u8>| [field(1, 2, b"t"), field(8, 2, &body)].concat();
    let content = tensor([field(1, 0, &[1]), field(2, 2, &[]), field(4, 2, &0.25_f32.to_le_bytes())].concat());
    let listed = tensor([field(1, 0, &[1]), field(5, 2, &0.5_f32.to_le_bytes())].concat());
    let text = tensor([field(1, 0, &[7]), field(8, 2, b"words")].concat());
    let two = tensor([field(1, 0, &[1]), field(2, 2, &field(2, 2, &field(1, 0, &[2]))), field(4, 2, &[0; 8])].concat());
    let file =
        [version, record(&event(1, &simple("loss", 2.5))), record(&event(2, &content)), record(&event(3, &listed))];
    let file = [file.concat(), record(&event(4, &text)), record(&event(5, &two))].concat();
    assert_eq!(read(&mut EventFileReader::default(), &[&file]), ["loss 1=2.5", "t 2=0.25", "t 3=0.5"]);
    assert_eq!(read(&mut EventFileReader::for_run("train"), &[&file])[0], "train/loss 1=2.5");
    // Split at every position.
    for at in 0..file.len() {
        assert_eq!(read(&mut EventFileReader::default(), &[&file[..at], &file[at..]]).len(), 3, "cut at {at}");
    }
}

#[test]
fn a_bad_checksum_stops_reading_and_a_partial_record_waits() {
    let (one, mut two) = (record(&event(1, &simple("loss", 1.0))), record(&event(2, &simple("loss", 2.0))));
    let torn = &two[..two.len() - 3];
    let mut events = EventFileReader::default();
    assert_eq!(read(&mut events, &[&one, torn]), ["loss 1=1"]);
    assert!(!events.damaged);
    assert_eq!(read(&mut events, &[&two[two.len() - 3..]]), ["loss 2=2"]);
    two[20] ^= 1;
    assert_eq!(read(&mut events, &[&two, &one]), Vec::<String>::new());
    assert!(events.damaged && events.partial.capacity() == 0);
}

#[test]
fn a_large_record_is_skipped_without_buffering() {
    let (large, after) = (record(&vec![0; MAX_RECORD_LEN + 1]), record(&event(1, &simple("loss", 1.0))));
    let file = [large, after].concat();
    let (mut events, mut curves) = (EventFileReader::default(), Curves::default());
    for piece in file.chunks(7_001) {
        events.push(piece, &mut curves);
        assert!(events.partial.len() < 100_000);
    }
    assert_eq!((curves.seq(), events.damaged), (1, false));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), framed in any::<bool>()) {
        let bytes = if framed { record(&bytes) } else { bytes };
        read(&mut EventFileReader::default(), &[&bytes]);
    }
}
