//! A timeline that somebody asks for from outside, of what this rank does: some seconds of it, into a file in memory. The driver enters when it looks
//! at its block; `Observed` reports events as to any timeline. Apart from the user's own, which it does not disturb.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::SealFlags;

use crate::observe::status::status_memfd::{RECORDING, RecordRequest, sealed_file};
use crate::observe::timeline::Timeline;

/// However long it is asked for.
const MAX_DURATION: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub struct Recorder {
    /// Also written by whoever steps in shared memory.
    pub timeline: Arc<Timeline>,
    last: Option<Recording>,
}

#[derive(Debug)]
struct Recording {
    number: u64,
    until: Duration,
    /// Kept until the next one, for whoever asked.
    file: File,
    is_done: bool,
}

impl Recorder {
    /// Whether a recording is there, and is done.
    pub fn state(&self) -> Option<(u64, bool)> {
        self.last.as_ref().map(|last| (last.number, last.is_done))
    }

    /// Starts what is asked for anew, and ends what has lasted long enough.
    pub fn poll(&mut self, record_request: Option<RecordRequest>, rank: usize, now: Duration, now_micros: u64) {
        if let Some(record_request) = record_request
            .filter(|record_request| self.last.as_ref().is_none_or(|last| last.number != record_request.number))
        {
            self.finish();
            self.start(record_request, rank, now, now_micros);
        }
        if self.last.as_ref().is_some_and(|last| now >= last.until) {
            self.finish();
        }
    }

    /// Without memory for it there is no recording, which whoever asked sees.
    fn start(&mut self, record_request: RecordRequest, rank: usize, now: Duration, now_micros: u64) {
        let RecordRequest { number, millis, max_bytes } = record_request;
        let name = format!("{RECORDING}.{number}.{rank}");
        let Ok(file) = sealed_file(&name) else { return };
        let Ok(writing) = file.try_clone() else { return };
        if self.timeline.start_into(writing, &name, max_bytes, now_micros).is_ok() {
            let until = now + Duration::from_millis(millis).min(MAX_DURATION);
            self.last = Some(Recording { number, until, file, is_done: false });
        }
    }

    pub fn finish(&mut self) {
        let Some(last) = self.last.as_mut().filter(|last| !last.is_done) else { return };
        last.is_done = true;
        // It ends where memory did, if there was not enough.
        let _ = self.timeline.stop();
        let _ = rustix::fs::fcntl_add_seals(&last.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::dtype::Dtype;

    const SECOND: Duration = Duration::from_secs(1);

    fn text(recorder: &Recorder) -> String {
        let file = &recorder.last.as_ref().expect("a recording").file;
        let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
        file.read_exact_at(&mut bytes, 0).expect("bytes");
        String::from_utf8(bytes).expect("text")
    }

    fn play(recorder: &Recorder) {
        recorder.timeline.operation_start("loss", "ALLREDUCE");
        recorder.timeline.operation_end("loss", Dtype::F32, &[4]);
    }

    #[test]
    fn it_records_for_as_long_as_it_was_asked_to() {
        let mut recorder = Recorder::default();
        recorder.poll(None, 0, SECOND, 1);
        assert_eq!(recorder.state(), None);
        let record_request = RecordRequest { number: 5, millis: 2_000, max_bytes: 1 << 20 };
        recorder.poll(Some(record_request), 0, SECOND, 1);
        play(&recorder);
        recorder.poll(Some(record_request), 0, 2 * SECOND, 1);
        assert_eq!(recorder.state(), Some((5, false)));
        recorder.poll(Some(record_request), 0, 3 * SECOND, 1);
        play(&recorder);
        assert_eq!(recorder.state(), Some((5, true)));
        assert_eq!(text(&recorder).matches("\"ALLREDUCE\"").count(), 1);
        // The same wish is not a new one; another is, and may ask for the end.
        recorder.poll(Some(record_request), 0, 4 * SECOND, 1);
        assert_eq!(recorder.state(), Some((5, true)));
        recorder.poll(Some(RecordRequest { number: 6, ..record_request }), 0, 4 * SECOND, 1);
        recorder.poll(Some(RecordRequest { number: 7, millis: 0, ..record_request }), 0, 4 * SECOND, 1);
        assert_eq!(recorder.state(), Some((7, true)));
        let file = &recorder.last.as_ref().expect("a recording").file;
        assert!(file.write_all_at(b"x", 0).is_err(), "it is sealed");
    }

    #[test]
    fn it_never_gets_larger_than_asked_for() {
        let mut recorder = Recorder::default();
        recorder.poll(Some(RecordRequest { number: 1, millis: 1, max_bytes: 500 }), 0, SECOND, 1);
        (0..50).for_each(|_| play(&recorder));
        recorder.finish();
        let text = text(&recorder);
        assert!(text.len() < 800 && text.contains("EVENTS_DROPPED"), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    }
}
