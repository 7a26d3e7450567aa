//! Reads what the collective engines of a task's processes show of themselves. An engine keeps a small file in memory among its open files
//! (`collectives::observe::status::status_memfd` says what is in it), in whatever container or name space the process is. Entered by `figures`,
//! when somebody looks. Trusts no process: only a file of memory whose size is sealed is taken for one, and nothing is waited for.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, SealFlags, fcntl_get_seals};
use serde::Deserialize;

use corro_model::batchai::{Awaited, Collective, EngineFigures, EngineTotals};

const LINK: &str = "/memfd:corro-engine (deleted)";
pub const PAGE_BYTES: usize = 4096;
/// Reading is over in microseconds and writing happens ten times in a second: the second try finds it whole.
const TRIES: usize = 5;
/// A process that was never slow has few files open; one that hides its block among millions is not looked through.
const MOST_FILES: usize = 65_536;

/// What the engines in these processes show, by rank.
pub fn of(pids: &[i32]) -> Vec<EngineFigures> {
    let mut engines: Vec<EngineFigures> = blocks(pids).iter().filter_map(read).collect();
    engines.sort_by_key(|engine| engine.rank);
    engines
}

/// Each once: what a process forks has the same files.
pub fn blocks(pids: &[i32]) -> Vec<File> {
    let mut seen = BTreeSet::new();
    let files = pids.iter().flat_map(|pid| open_files(*pid, |link| (link == LINK).then_some(())));
    let files = files.map(|((), file)| file);
    files.filter(|file| file.metadata().is_ok_and(|file| seen.insert((file.dev(), file.ino())))).collect()
}

/// The files of memory with a name that is `known` which a process has open, if their size is sealed.
pub fn open_files<T>(pid: i32, known: impl Fn(&str) -> Option<T>) -> impl Iterator<Item = (T, File)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().take(MOST_FILES).flatten();
    entries
        .map(|entry| entry.path())
        .filter_map(move |path| Some((known(fs::read_link(&path).ok()?.to_str()?)?, path)))
        .filter_map(|(what, path)| {
            // The process may have put something else there meanwhile, which may be a pipe or somebody's file. Only a file of
            // memory can have seals, and only its owner sets them.
            let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
            let seals = fcntl_get_seals(&file).ok()?;
            seals.contains(SealFlags::SHRINK | SealFlags::GROW).then_some((what, file))
        })
}

fn read(block: &File) -> Option<EngineFigures> {
    let (written, at) = look(block)?;
    Some(figures(written, SystemTime::now().duration_since(at).unwrap_or_default()))
}

/// The number of the engine's last recording, and whether it is done.
pub fn recording_of(block: &File) -> Option<(u64, bool)> {
    look(block)?.0.recording.map(|recording| (recording.number, recording.done))
}

/// What is written, and when it was.
fn look(block: &File) -> Option<(Written, SystemTime)> {
    for _ in 0..TRIES {
        let mut page = [0; PAGE_BYTES];
        block.read_exact_at(&mut page, 0).ok()?;
        let at = block.metadata().and_then(|file| file.modified()).ok()?;
        if let Some(written) = whole(&page) {
            return Some((written, at));
        }
    }
    None
}

/// As the engine writes it: nanoseconds, moments as so many before it was written.
#[derive(Deserialize)]
struct Written {
    seq: u64,
    end: u64,
    rank: usize,
    size: usize,
    totals: WrittenTotals,
    window: Option<WrittenTotals>,
    last: Option<WrittenCollective>,
    working: Option<WrittenCollective>,
    waiting: Option<WrittenCollective>,
    awaited: Option<WrittenAwaited>,
    recording: Option<WrittenRecording>,
}

#[derive(Deserialize)]
struct WrittenRecording {
    number: u64,
    done: bool,
}

#[derive(Deserialize)]
struct WrittenTotals {
    nanos: u64,
    operations: u64,
    tensors: u64,
    steps: u64,
    bytes: u64,
    waited: u64,
    worked: u64,
}

#[derive(Deserialize)]
struct WrittenCollective {
    name: String,
    kind: Option<String>,
    tensors: Option<u64>,
    bytes: Option<u64>,
    #[serde(alias = "ended")]
    since: u64,
}

#[derive(Deserialize)]
struct WrittenAwaited {
    name: String,
    since: u64,
    ranks: Vec<usize>,
    count: usize,
}

/// `None` when it was caught half written, or is nothing of ours.
fn whole(page: &[u8]) -> Option<Written> {
    serde_json::from_slice(page).ok().filter(|written: &Written| written.seq == written.end)
}

fn figures(written: Written, age: Duration) -> EngineFigures {
    let age_ms = age.as_millis() as u64;
    let ms = |nanos: u64| nanos / 1_000_000;
    let totals = |totals: WrittenTotals| EngineTotals {
        ms: ms(totals.nanos),
        steps: totals.steps,
        operations: totals.operations,
        tensors: totals.tensors,
        bytes: totals.bytes,
        waited_ms: ms(totals.waited),
        worked_ms: ms(totals.worked),
    };
    let collective = |what: WrittenCollective| Collective {
        name: what.name,
        kind: what.kind,
        tensors: what.tensors,
        bytes: what.bytes,
        ms_ago: ms(what.since) + age_ms,
    };
    let awaited = |what: WrittenAwaited| Awaited {
        name: what.name,
        ms_ago: ms(what.since) + age_ms,
        ranks: what.ranks,
        count: what.count,
    };
    let all = totals(written.totals);
    EngineFigures {
        rank: written.rank,
        size: written.size,
        window: written.window.map_or(all, totals),
        totals: all,
        last: written.last.map(collective),
        working_on: written.working.map(collective),
        waits_for: written.waiting.map(collective),
        awaited: written.awaited.map(awaited),
        seen_ms_ago: age_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: &str =
        r#"{"nanos":5000000,"operations":2,"tensors":3,"steps":2,"bytes":64,"waited":3000000,"worked":1000000}"#;

    #[test]
    fn moments_count_from_now() {
        let page = format!(
            r#"{{"seq":3,"rank":1,"size":4,"totals":{TOTALS},"last":{{"name":"a","kind":"ALLREDUCE","tensors":3,"bytes":64,"ended":2000000}},"waiting":{{"name":"b","since":9000000}},"end":3}}   "#
        );
        let engine = figures(whole(page.as_bytes()).expect("whole"), Duration::from_millis(50));
        assert_eq!((engine.rank, engine.size, engine.seen_ms_ago), (1, 4, 50));
        assert_eq!((engine.window.ms, engine.window.waited_ms, engine.totals.bytes), (5, 3, 64));
        assert_eq!(engine.last.map(|last| last.ms_ago), Some(52));
        assert_eq!(engine.waits_for.map(|waits| (waits.name, waits.ms_ago)), Some(("b".to_owned(), 59)));
    }

    #[test]
    fn what_is_half_written_is_nothing() {
        let page = format!(r#"{{"seq":3,"rank":1,"size":4,"totals":{TOTALS},"end":2}}"#);
        assert!(whole(page.as_bytes()).is_none() && whole(&[0; PAGE_BYTES]).is_none());
    }

    #[test]
    fn only_sealed_memory_is_taken_for_a_block() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

        let me = std::process::id() as i32;
        let name = "corro-engine";
        let plain: File = memfd_create(name, MemfdFlags::ALLOW_SEALING).expect("memory").into();
        plain.set_len(8192).expect("room");
        let n_open = || open_files(me, |link| (link == LINK).then_some(())).count();
        assert_eq!(n_open(), 0);
        fcntl_add_seals(&plain, SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
        let also = plain.try_clone().expect("a second descriptor");
        assert_eq!((n_open(), blocks(&[me, me]).len()), (2, 1));
        let page = format!(r#"{{"seq":1,"rank":0,"size":1,"totals":{TOTALS},"end":1}}"#);
        plain.write_all_at(&[b' '; PAGE_BYTES], 0).expect("written");
        plain.write_all_at(page.as_bytes(), 0).expect("written");
        assert_eq!(of(&[me]).len(), 1);
        drop(also);
    }
}
