//! What trainings write: lines of logs, `metrics.jsonl`, TensorBoard's event files and the server's own records of curves. Read in two
//! pieces, cut anywhere.

use corro_metrics::events::Events;
use corro_metrics::record::{self, Records};
use corro_metrics::{Curves, Stream};

pub fn metrics(data: &[u8]) {
    let (cut, data) = data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first).min(rest.len()), rest));
    let (first, second) = data.split_at(cut);
    let mut curves = Curves::default();
    for mut stream in [Stream::log(Some(1), true), Stream::log(None, false), Stream::file()] {
        stream.push(first, Some(1), &mut curves);
        stream.push(second, None, &mut curves);
        stream.finish(&mut curves);
    }
    let mut events = Events::of_run("run");
    events.push(first, &mut curves);
    events.push(second, &mut curves);
    let written = record::write(&curves, 0);
    let mut again = Curves::default();
    let mut records = Records::default();
    records.push(written.as_bytes(), &mut again);
    records.finish(&mut again);
    let mut others = Records::default();
    others.push(data, &mut again);
    others.finish(&mut again);
}
