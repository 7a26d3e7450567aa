//! Has the collective engines of a task's processes record a timeline, and reads what they recorded. They are asked through their blocks and
//! keep the recording in memory (`collectives::observe::recorder`), sealed when it is done. Entered by `connection`. Blocks for as
//! long as the recording lasts.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use corro_model::AttemptId;
use corro_model::node::FromRecording;

use crate::identity::incarnation::TagPrefix;
use crate::stats::engine_status::{PAGE_BYTES, blocks, open_files, recording_of};
use crate::stats::process_stats;

const LINK: &str = "/memfd:corro-timeline.";
/// It is one message to the server, which has a limit.
const MOST_OF_A_RANK: u64 = 2 << 20;
/// An engine looks ten times in a second, unless it is within an operation.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// What is asked for; `most_bytes` of all ranks together.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub number: u64,
    pub millis: u64,
    pub most_bytes: u64,
}

/// One message for each rank, and one that says that this was all.
pub fn record(tags: &TagPrefix, attempt: Option<AttemptId>, wish: Wish, mut send: impl FnMut(FromRecording)) {
    let pids = attempt.map_or_else(Vec::new, |attempt| process_stats::pids_of(tags, &attempt));
    let mut asked = blocks(&pids);
    let most_bytes = (wish.most_bytes / asked.len().max(1) as u64).min(MOST_OF_A_RANK);
    let wish = Wish { most_bytes, ..wish };
    asked.retain(|block| ask(block, wish).is_ok());
    let deadline = Instant::now() + Duration::from_millis(wish.millis) + PATIENCE;
    let is_done = |block: &File| recording_of(block) == Some((wish.number, true));
    while !asked.iter().all(is_done) && Instant::now() < deadline {
        sleep(PAUSE);
    }
    for (rank, text) in recorded(&pids, wish) {
        send(FromRecording { number: wish.number, rank: Some((rank, text)) });
    }
    send(FromRecording { number: wish.number, rank: None });
}

fn ask(block: &File, Wish { number, millis, most_bytes }: Wish) -> std::io::Result<()> {
    let words = [number, millis, most_bytes, number ^ millis ^ most_bytes].map(u64::to_le_bytes).concat();
    block.write_all_at(&words, PAGE_BYTES as u64)
}

fn recorded(pids: &[i32], wish: Wish) -> BTreeMap<usize, String> {
    let prefix = format!("{LINK}{}.", wish.number);
    let rank_of = move |link: &str| link.strip_prefix(&prefix)?.strip_suffix(" (deleted)")?.parse::<usize>().ok();
    let files = pids.iter().flat_map(|pid| open_files(*pid, rank_of.clone()));
    files.filter_map(|(rank, file)| Some((rank, read(&file, wish.most_bytes)?))).collect()
}

/// The engine ends with a few records beyond the size it was given.
fn read(file: &File, most_bytes: u64) -> Option<String> {
    let n_bytes = file.metadata().ok()?.len();
    if n_bytes > most_bytes + PAGE_BYTES as u64 {
        return None;
    }
    let mut bytes = vec![0; n_bytes as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes).ok()
}
