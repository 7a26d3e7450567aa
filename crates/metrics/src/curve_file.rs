//! File format for curves, written by nodes while a job runs and read by the server. Each line is a JSON [`Series`]
//! with some points of one curve. A later point replaces an earlier one with the same step.

use corro_model::metrics::{Point, Series};

use crate::curve::CurvePoint;
use crate::curves::{CurveKey, Curves};
use crate::line_splitter::{LineSplitter, MAX_LINE_LEN};
use crate::metric_names;

/// Points per line, chosen so that a line stays below `MAX_LINE_LEN`.
const POINTS_PER_LINE: usize = 80;
/// Maximum length of a metric name in bytes; curves with longer names are skipped.
const MAX_NAME_LEN: usize = 256;

/// Encodes the points with a sequence number above `after`.
pub fn encode_since(curves: &Curves, after: u64) -> String {
    let mut text = String::new();
    for (key, curve) in curves.iter().filter(|(key, _)| key.name.len() <= MAX_NAME_LEN) {
        let fresh: Vec<Point> = curve.points().iter().filter(|kept| kept.seq > after).map(CurvePoint::point).collect();
        for points in fresh.chunks(POINTS_PER_LINE) {
            let (name, unit) = (key.name.clone(), curve.unit.map(str::to_owned));
            let CurveKey { source, axis, rank, .. } = *key;
            let series = Series { name, rank, unit, axis, source, points: points.to_vec(), count: curve.count };
            let line = serde_json::to_string(&series).expect("a series serializes");
            if line.len() < MAX_LINE_LEN {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    text
}

/// Incremental reader; accepts pieces of any size and skips lines that do not parse.
#[derive(Clone, Debug, Default)]
pub struct CurveFileReader(LineSplitter);

impl CurveFileReader {
    pub fn push(&mut self, bytes: &[u8], curves: &mut Curves) {
        self.0.push(bytes, |line| apply_line(line, curves));
    }

    /// Ends the input and applies the last, unterminated line.
    pub fn finish(&mut self, curves: &mut Curves) {
        self.0.finish(|line| apply_line(line, curves));
    }
}

fn apply_line(line: &str, curves: &mut Curves) {
    let Ok(series) = serde_json::from_str::<Series>(line) else { return };
    let Series { name, rank, unit, axis, source, points, .. } = series;
    if name.len() > MAX_NAME_LEN {
        return;
    }
    let unit = unit.as_deref().and_then(metric_names::intern_unit);
    for Point { step, time, value } in points {
        curves.add(CurveKey { name: name.clone(), source, axis, rank }, unit, (step, time, value), false);
    }
}

#[cfg(test)]
mod tests {
    use corro_model::metrics::{Axis, Source};

    use super::*;
    use crate::MetricStream;

    fn points(curves: &Curves, rank: u32) -> String {
        let key = CurveKey { name: "loss".into(), source: Source::Log, axis: Axis::Step, rank: Some(rank) };
        curves.points(&key).map(|kept| format!("{}:{}", kept.step, kept.value)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn encoded_curves_are_read_back() {
        let (mut curves, mut seen) = (Curves::default(), Curves::default());
        let mut streams = [0, 1].map(|rank| MetricStream::log(Some(rank), false));
        let mut records = CurveFileReader::default();
        let mut after = 0;
        for (step, loss) in [(1, 4.0), (2, 3.0), (3, 2.0)] {
            for (rank, stream) in streams.iter_mut().enumerate() {
                let line = format!("{step}/9 [=>...] - ETA: 1s - 20ms/step - loss: {}\r", loss + rank as f64);
                stream.push(line.as_bytes(), Some(1_000), &mut curves);
            }
            let text = encode_since(&curves, after);
            after = curves.seq();
            assert!(!text.is_empty() && encode_since(&curves, after).is_empty());
            // Split in the middle, as partial reads of a file would.
            let (one, other) = text.as_bytes().split_at(text.len() / 2);
            records.push(one, &mut seen);
            records.push(other, &mut seen);
        }
        records.push(b"nonsense 7\n{\"name\": 3}\n", &mut seen);
        assert_eq!([points(&seen, 0), points(&seen, 1)], ["1:4 2:3 3:2", "1:5 2:4 3:3"]);
        let rate = seen.iter().find(|(key, _)| key.name == "steps_per_second").map(|(_, curve)| curve.unit);
        assert_eq!(rate, Some(Some("steps/s")));
    }

    #[test]
    fn no_line_exceeds_the_line_limit() {
        let (mut curves, mut stream) = (Curves::default(), MetricStream::log(Some(0), false));
        for step in 0..1000 {
            stream.push(
                format!("step={step} loss=0.{step}123456789\n").as_bytes(),
                Some(1_600_000_000_000),
                &mut curves,
            );
        }
        let text = encode_since(&curves, 0);
        assert!(text.lines().count() > 5 && text.lines().all(|line| line.len() < MAX_LINE_LEN));
        let (mut seen, mut records) = (Curves::default(), CurveFileReader::default());
        records.push(text.as_bytes(), &mut seen);
        assert_eq!(points(&seen, 0), points(&curves, 0));
    }
}
