//! Asks the collective engines of a task's processes to record a timeline, and reads the recordings. The request is
//! written to the engines' status memfds; an engine puts its recording into another memfd
//! (`collectives::observe::recorder`) and seals it when finished. Blocks while recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use corro_model::AttemptId;
use corro_model::node::FromRecording;

use crate::identity::incarnation::TagPrefix;
use crate::stats::engine_status::{PAGE_BYTES, open_memfds, recording_status, status_files};
use crate::stats::process_stats;

const TIMELINE_LINK: &str = "/memfd:corro-timeline.";
/// Limit per rank: a recording is one message to the server, which limits its size.
const MAX_RANK_BYTES: u64 = 2 << 20;
/// Extra time for engines to begin and finish. They check for requests ten times a second, unless an operation is
/// running.
const RECORD_GRACE: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A recording request. `most_bytes` is the limit for all ranks together.
#[derive(Clone, Copy, Debug)]
pub struct RecordRequest {
    pub number: u64,
    pub millis: u64,
    pub most_bytes: u64,
}

/// Records and sends one message for each rank, then one without a rank as the end.
pub fn record(
    tags: &TagPrefix,
    attempt: Option<AttemptId>,
    request: RecordRequest,
    mut send: impl FnMut(FromRecording),
) {
    let pids = attempt.map_or_else(Vec::new, |attempt| process_stats::pids_of(tags, &attempt));
    let mut status_files = status_files(&pids);
    let most_bytes = (request.most_bytes / status_files.len().max(1) as u64).min(MAX_RANK_BYTES);
    let request = RecordRequest { most_bytes, ..request };
    status_files.retain(|file| request_recording(file, request).is_ok());
    let deadline = Instant::now() + Duration::from_millis(request.millis) + RECORD_GRACE;
    let is_done = |file: &File| recording_status(file) == Some((request.number, true));
    while !status_files.iter().all(is_done) && Instant::now() < deadline {
        sleep(POLL_INTERVAL);
    }
    for (rank, text) in read_recordings(&pids, request) {
        send(FromRecording { number: request.number, rank: Some((rank, text)) });
    }
    send(FromRecording { number: request.number, rank: None });
}

fn request_recording(file: &File, RecordRequest { number, millis, most_bytes }: RecordRequest) -> std::io::Result<()> {
    let words = [number, millis, most_bytes, number ^ millis ^ most_bytes].map(u64::to_le_bytes).concat();
    file.write_all_at(&words, PAGE_BYTES as u64)
}

fn read_recordings(pids: &[i32], request: RecordRequest) -> BTreeMap<usize, String> {
    let prefix = format!("{TIMELINE_LINK}{}.", request.number);
    let rank_of = move |link: &str| link.strip_prefix(&prefix)?.strip_suffix(" (deleted)")?.parse::<usize>().ok();
    let files = pids.iter().flat_map(|pid| open_memfds(*pid, rank_of.clone()));
    files.filter_map(|(rank, file)| Some((rank, read_recording(&file, request.most_bytes)?))).collect()
}

/// Reads a finished recording. The engine may exceed its limit by a few records.
fn read_recording(file: &File, most_bytes: u64) -> Option<String> {
    let n_bytes = file.metadata().ok()?.len();
    if n_bytes > most_bytes + PAGE_BYTES as u64 {
        return None;
    }
    let mut bytes = vec![0; n_bytes as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes).ok()
}
