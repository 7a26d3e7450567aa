//! Parsers of training output: log lines, `metrics.jsonl`, TensorBoard event files and stored curve files. Each input is read
//! in two chunks, split at any byte.

use corro_metrics::curve_file::{self, CurveFileReader};
use corro_metrics::tfevents::EventFileReader;
use corro_metrics::{Curves, MetricStream};

pub fn metrics(data: &[u8]) {
    let (cut, data) = data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first).min(rest.len()), rest));
    let (first, second) = data.split_at(cut);
    let mut curves = Curves::default();
    for mut stream in [MetricStream::log(Some(1), true), MetricStream::log(None, false), MetricStream::file()] {
        stream.push(first, Some(1), &mut curves);
        stream.push(second, None, &mut curves);
        stream.finish(&mut curves);
    }
    let mut events = EventFileReader::for_run("run");
    events.push(first, &mut curves);
    events.push(second, &mut curves);
    let written = curve_file::encode_since(&curves, 0);
    let mut again = Curves::default();
    let mut records = CurveFileReader::default();
    records.push(written.as_bytes(), &mut again);
    records.finish(&mut again);
    let mut others = CurveFileReader::default();
    others.push(data, &mut again);
    others.finish(&mut again);
}
