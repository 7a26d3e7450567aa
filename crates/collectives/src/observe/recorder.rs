//! Timeline recordings of this rank on request from outside the process: some seconds of events, written to a memfd that the requester reads
//! through `/proc/PID/fd`. Independent of the user's own timeline.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::SealFlags;

use crate::observe::status::status_memfd::{RECORDING_NAME, RecordRequest, create_memfd};
use crate::observe::timeline::Timeline;

/// Longest recording.
const MAX_DURATION: Duration = Duration::from_secs(120);

/// The current or last recording.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Also written by the shared-memory optimizer.
    pub timeline: Arc<Timeline>,
    last: Option<Recording>,
}

/// One recording. `until` is on the engine's clock.
#[derive(Debug)]
struct Recording {
    number: u64,
    until: Duration,
    /// Kept open until the next recording, so that the requester can read it.
    file: File,
    is_done: bool,
}

impl Recorder {
    /// Number of the current or last recording, and whether it is complete.
    pub fn state(&self) -> Option<(u64, bool)> {
        self.last.as_ref().map(|last| (last.number, last.is_done))
    }

    /// Starts a newly requested recording, and ends the current one when its time is over.
    pub fn poll(&mut self, request: Option<RecordRequest>, rank: usize, now: Duration, now_micros: u64) {
        if let Some(request) =
            request.filter(|request| self.last.as_ref().is_none_or(|last| last.number != request.number))
        {
            self.finish();
            self.start(request, rank, now, now_micros);
        }
        if self.last.as_ref().is_some_and(|last| now >= last.until) {
            self.finish();
        }
    }

    /// Starts a recording. If no memfd can be created there is none; the requester sees that from the status.
    fn start(&mut self, request: RecordRequest, rank: usize, now: Duration, now_micros: u64) {
        let RecordRequest { number, millis, max_bytes } = request;
        let name = format!("{RECORDING_NAME}.{number}.{rank}");
        let Ok(file) = create_memfd(&name) else { return };
        let Ok(writing) = file.try_clone() else { return };
        if self.timeline.start_into(writing, &name, max_bytes, now_micros).is_ok() {
            let until = now + Duration::from_millis(millis).min(MAX_DURATION);
            self.last = Some(Recording { number, until, file, is_done: false });
        }
    }

    pub fn finish(&mut self) {
        let Some(last) = self.last.as_mut().filter(|last| !last.is_done) else { return };
        last.is_done = true;
        // A failed write leaves a shorter file.
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
    fn a_recording_lasts_as_long_as_requested() {
        let mut recorder = Recorder::default();
        recorder.poll(None, 0, SECOND, 1);
        assert_eq!(recorder.state(), None);
        let request = RecordRequest { number: 5, millis: 2_000, max_bytes: 1 << 20 };
        recorder.poll(Some(request), 0, SECOND, 1);
        play(&recorder);
        recorder.poll(Some(request), 0, 2 * SECOND, 1);
        assert_eq!(recorder.state(), Some((5, false)));
        recorder.poll(Some(request), 0, 3 * SECOND, 1);
        play(&recorder);
        assert_eq!(recorder.state(), Some((5, true)));
        assert_eq!(text(&recorder).matches("\"ALLREDUCE\"").count(), 1);
        // The same number is not a new request. A new request with 0 ms ends the recording.
        recorder.poll(Some(request), 0, 4 * SECOND, 1);
        assert_eq!(recorder.state(), Some((5, true)));
        recorder.poll(Some(RecordRequest { number: 6, ..request }), 0, 4 * SECOND, 1);
        recorder.poll(Some(RecordRequest { number: 7, millis: 0, ..request }), 0, 4 * SECOND, 1);
        assert_eq!(recorder.state(), Some((7, true)));
        let file = &recorder.last.as_ref().expect("a recording").file;
        assert!(file.write_all_at(b"x", 0).is_err(), "it is sealed");
    }

    #[test]
    fn a_recording_never_exceeds_the_requested_size() {
        let mut recorder = Recorder::default();
        recorder.poll(Some(RecordRequest { number: 1, millis: 1, max_bytes: 500 }), 0, SECOND, 1);
        (0..50).for_each(|_| play(&recorder));
        recorder.finish();
        let text = text(&recorder);
        assert!(text.len() < 800 && text.contains("EVENTS_DROPPED"), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    }
}
