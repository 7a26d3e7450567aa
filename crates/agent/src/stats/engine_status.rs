//! Reads the status of the collective engines in a task's processes. An engine keeps a small memfd among its open files
//! (`collectives::observe::status::status_memfd` defines its content), which is found under `/proc/PID/fd` whatever container or
//! namespace the process is in. No process is trusted: only memfds with sealed size are read, and nothing is waited
//! for.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, SealFlags, fcntl_get_seals};
use serde::Deserialize;

use corro_model::batchai::{Collective, EngineStats, EngineTotals, StalledCollective};

const STATUS_LINK: &str = "/memfd:corro-engine (deleted)";
/// Size of the status page; requests to the engine follow after it.
pub const PAGE_BYTES: usize = 4096;
/// Attempts to read a page between two writes. A read takes microseconds and a write happens ten times a second, so the
/// second attempt succeeds.
const MAX_READ_ATTEMPTS: usize = 5;
/// Open files of a process that are searched, at most. Engines open theirs early.
const MAX_OPEN_FILES: usize = 65_536;

/// Status of all engines in these processes, sorted by rank.
pub fn read_all(pids: &[i32]) -> Vec<EngineStats> {
    let mut engines: Vec<EngineStats> = status_files(pids).iter().filter_map(read).collect();
    engines.sort_by_key(|engine| engine.rank);
    engines
}

/// The status files of these processes, without duplicates: forked children share them.
pub fn status_files(pids: &[i32]) -> Vec<File> {
    let mut seen = BTreeSet::new();
    let files = pids.iter().flat_map(|pid| open_memfds(*pid, |link| (link == STATUS_LINK).then_some(())));
    let files = files.map(|((), file)| file);
    files.filter(|file| file.metadata().is_ok_and(|file| seen.insert((file.dev(), file.ino())))).collect()
}

/// Memfds with sealed size that a process has open and whose name `parse_name` accepts.
pub fn open_memfds<T>(pid: i32, parse_name: impl Fn(&str) -> Option<T>) -> impl Iterator<Item = (T, File)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().take(MAX_OPEN_FILES).flatten();
    entries
        .map(|entry| entry.path())
        .filter_map(move |path| Some((parse_name(fs::read_link(&path).ok()?.to_str()?)?, path)))
        .filter_map(|(what, path)| {
            // The process may have replaced the file meanwhile by a pipe or any other file. Only memfds have seals, and
            // only their owner sets them.
            let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
            let seals = fcntl_get_seals(&file).ok()?;
            seals.contains(SealFlags::SHRINK | SealFlags::GROW).then_some((what, file))
        })
}

fn read(file: &File) -> Option<EngineStats> {
    let (page, at) = read_page(file)?;
    Some(to_engine_stats(page, SystemTime::now().duration_since(at).unwrap_or_default()))
}

/// Number of the engine's last recording, and whether it is finished.
pub fn recording_status(file: &File) -> Option<(u64, bool)> {
    read_page(file)?.0.recording.map(|recording| (recording.number, recording.done))
}

/// The status page and the time at which it was written.
fn read_page(file: &File) -> Option<(StatusPage, SystemTime)> {
    for _ in 0..MAX_READ_ATTEMPTS {
        let mut page = [0; PAGE_BYTES];
        file.read_exact_at(&mut page, 0).ok()?;
        let at = file.metadata().and_then(|file| file.modified()).ok()?;
        if let Some(page) = parse_page(&page) {
            return Some((page, at));
        }
    }
    None
}

/// Status page as the engine writes it: durations in nanoseconds, times as the age when written.
#[derive(Deserialize)]
struct StatusPage {
    seq: u64,
    end: u64,
    rank: usize,
    size: usize,
    totals: TotalsStatus,
    window: Option<TotalsStatus>,
    last: Option<CollectiveStatus>,
    working: Option<CollectiveStatus>,
    waiting: Option<CollectiveStatus>,
    awaited: Option<AwaitedStatus>,
    recording: Option<RecordingStatus>,
}

#[derive(Deserialize)]
struct RecordingStatus {
    number: u64,
    done: bool,
}

#[derive(Deserialize)]
struct TotalsStatus {
    nanos: u64,
    operations: u64,
    tensors: u64,
    steps: u64,
    bytes: u64,
    waited: u64,
    worked: u64,
}

#[derive(Deserialize)]
struct CollectiveStatus {
    name: String,
    kind: Option<String>,
    tensors: Option<u64>,
    bytes: Option<u64>,
    #[serde(alias = "ended")]
    since: u64,
}

#[derive(Deserialize)]
struct AwaitedStatus {
    name: String,
    since: u64,
    ranks: Vec<usize>,
    count: usize,
}

/// Parses a page; `None` if it was read during a write or is not a status page.
fn parse_page(page: &[u8]) -> Option<StatusPage> {
    serde_json::from_slice(page).ok().filter(|page: &StatusPage| page.seq == page.end)
}

fn to_engine_stats(page: StatusPage, age: Duration) -> EngineStats {
    let age_ms = age.as_millis() as u64;
    let ms = |nanos: u64| nanos / 1_000_000;
    let totals = |totals: TotalsStatus| EngineTotals {
        ms: ms(totals.nanos),
        steps: totals.steps,
        operations: totals.operations,
        tensors: totals.tensors,
        bytes: totals.bytes,
        waited_ms: ms(totals.waited),
        worked_ms: ms(totals.worked),
    };
    let collective = |what: CollectiveStatus| Collective {
        name: what.name,
        kind: what.kind,
        tensors: what.tensors,
        bytes: what.bytes,
        ms_ago: ms(what.since) + age_ms,
    };
    let awaited = |what: AwaitedStatus| StalledCollective {
        name: what.name,
        ms_ago: ms(what.since) + age_ms,
        ranks: what.ranks,
        count: what.count,
    };
    let all = totals(page.totals);
    EngineStats {
        rank: page.rank,
        size: page.size,
        window: page.window.map_or(all, totals),
        totals: all,
        last: page.last.map(collective),
        working_on: page.working.map(collective),
        waits_for: page.waiting.map(collective),
        awaited: page.awaited.map(awaited),
        seen_ms_ago: age_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: &str =
        r#"{"nanos":5000000,"operations":2,"tensors":3,"steps":2,"bytes":64,"waited":3000000,"worked":1000000}"#;

    #[test]
    fn times_are_ages_plus_the_pages_age() {
        let page = format!(
            r#"{{"seq":3,"rank":1,"size":4,"totals":{TOTALS},"last":{{"name":"a","kind":"ALLREDUCE","tensors":3,"bytes":64,"ended":2000000}},"waiting":{{"name":"b","since":9000000}},"end":3}}   "#
        );
        let engine = to_engine_stats(parse_page(page.as_bytes()).expect("whole"), Duration::from_millis(50));
        assert_eq!((engine.rank, engine.size, engine.seen_ms_ago), (1, 4, 50));
        assert_eq!((engine.window.ms, engine.window.waited_ms, engine.totals.bytes), (5, 3, 64));
        assert_eq!(engine.last.map(|last| last.ms_ago), Some(52));
        assert_eq!(engine.waits_for.map(|waits| (waits.name, waits.ms_ago)), Some(("b".to_owned(), 59)));
    }

    #[test]
    fn a_half_written_page_is_ignored() {
        let page = format!(r#"{{"seq":3,"rank":1,"size":4,"totals":{TOTALS},"end":2}}"#);
        assert!(parse_page(page.as_bytes()).is_none() && parse_page(&[0; PAGE_BYTES]).is_none());
    }

    #[test]
    fn only_sealed_memfds_are_read() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

        let me = std::process::id() as i32;
        let name = "corro-engine";
        let plain: File = memfd_create(name, MemfdFlags::ALLOW_SEALING).expect("memory").into();
        plain.set_len(8192).expect("room");
        let n_open = || open_memfds(me, |link| (link == STATUS_LINK).then_some(())).count();
        assert_eq!(n_open(), 0);
        fcntl_add_seals(&plain, SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
        let also = plain.try_clone().expect("a second descriptor");
        assert_eq!((n_open(), status_files(&[me, me]).len()), (2, 1));
        let page = format!(r#"{{"seq":1,"rank":0,"size":1,"totals":{TOTALS},"end":1}}"#);
        plain.write_all_at(&[b' '; PAGE_BYTES], 0).expect("written");
        plain.write_all_at(page.as_bytes(), 0).expect("written");
        assert_eq!(read_all(&[me]).len(), 1);
        drop(also);
    }
}
