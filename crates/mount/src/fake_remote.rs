//! A share in memory for tests. Loses nothing, and drops requests and answers at a configurable rate.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::inodes::Kind;
use crate::remote::{AppendBlock, Entry, Page, Remote, RemoteError, RemoteResult, SpaceInfo, Status};
use crate::writeback::DirtyRange;
use corro_test_support::rng::SplitMix64;

const PAGE: usize = 3;

/// A share in memory.
pub struct FakeRemote {
    inner: Mutex<Inner>,
}

struct Inner {
    entries: BTreeMap<String, FakeEntry>,
    appended: BTreeMap<(u64, u64), u64>,
    changes: u64,
    rng: SplitMix64,
    /// Percentage of requests without an answer; half of these are carried out.
    loss_percent: u64,
    quota: u64,
    /// Number of write requests.
    writes: u64,
}

#[derive(Clone)]
struct FakeEntry {
    kind: Kind,
    content: Vec<u8>,
    modified: SystemTime,
    change: u64,
}

fn permanent<T>(errno: i32) -> RemoteResult<T> {
    Err(RemoteError::Permanent { errno, why: format!("error {errno}") })
}

impl FakeRemote {
    pub fn new(seed: u64, loss_percent: u64) -> FakeRemote {
        let root = FakeEntry { kind: Kind::Directory, content: Vec::new(), modified: UNIX_EPOCH, change: 0 };
        let entries = BTreeMap::from([(String::new(), root)]);
        let rng = SplitMix64::new(seed);
        let inner =
            Inner { entries, appended: BTreeMap::new(), changes: 0, rng, loss_percent, quota: u64::MAX, writes: 0 };
        FakeRemote { inner: Mutex::new(inner) }
    }

    pub fn set_quota(&self, quota: u64) {
        self.inner.lock().expect("free").quota = quota;
    }

    pub fn writes(&self) -> u64 {
        self.inner.lock().expect("free").writes
    }

    pub fn fail_always(&self) {
        self.inner.lock().expect("free").loss_percent = 100;
    }

    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.inner.lock().expect("free").entries.get(path).map(|thing| thing.content.clone())
    }

    /// Writes a file like another machine.
    pub fn put(&self, path: &str, content: &[u8]) {
        let mut inner = self.inner.lock().expect("free");
        let thing = inner.thing(Kind::File, content.to_vec());
        inner.entries.insert(path.to_owned(), thing);
    }

    pub fn paths(&self) -> Vec<String> {
        self.inner.lock().expect("free").entries.keys().filter(|path| !path.is_empty()).cloned().collect()
    }

    fn carry_out<T>(&self, work: impl FnOnce(&mut Inner) -> RemoteResult<T>) -> RemoteResult<T> {
        let mut inner = self.inner.lock().expect("free");
        let lost = || Err(RemoteError::Transient { why: "lost".into() });
        let loss_percent = inner.loss_percent;
        if inner.rng.below(100) < loss_percent {
            return match inner.rng.below(2) {
                0 => lost(),
                _ => {
                    let _ = work(&mut inner);
                    lost()
                }
            };
        }
        work(&mut inner)
    }
}

impl Inner {
    fn thing(&mut self, kind: Kind, content: Vec<u8>) -> FakeEntry {
        self.changes += 1;
        FakeEntry { kind, content, modified: UNIX_EPOCH + Duration::from_secs(self.changes), change: self.changes }
    }

    fn file(&mut self, path: &str) -> RemoteResult<&mut FakeEntry> {
        match self.entries.get_mut(path) {
            Some(thing) if thing.kind == Kind::File => Ok(thing),
            Some(_) => permanent(libc::EISDIR),
            None => permanent(libc::ENOENT),
        }
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> RemoteResult<Status> {
        let quota = self.quota;
        let file = self.file(path)?;
        let mut content = file.content.clone();
        change(&mut content);
        if content.len() as u64 > quota {
            return permanent(libc::ENOSPC);
        }
        let thing = self.thing(Kind::File, content);
        self.entries.insert(path.to_owned(), thing.clone());
        Ok(status(&thing))
    }

    fn make(&mut self, path: &str, kind: Kind) -> RemoteResult<()> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if self.entries.get(parent).is_none_or(|thing| thing.kind != Kind::Directory) {
            return permanent(libc::ENOENT);
        }
        if self.entries.contains_key(path) {
            return permanent(libc::EEXIST);
        }
        let thing = self.thing(kind, Vec::new());
        self.entries.insert(path.to_owned(), thing);
        Ok(())
    }
}

fn put(content: &mut Vec<u8>, batch: &[DirtyRange]) {
    for piece in batch {
        let (start, end) = (piece.offset as usize, piece.offset as usize + piece.content.len());
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(&piece.content);
    }
}

fn status(thing: &FakeEntry) -> Status {
    let (kind, length, modified) = (thing.kind, thing.content.len() as u64, thing.modified);
    Status { kind, length, modified, etag: thing.change.to_string() }
}

impl Remote for FakeRemote {
    async fn stat(&self, path: &str) -> RemoteResult<Status> {
        self.carry_out(|inner| inner.entries.get(path).map(status).map_or_else(|| permanent(libc::ENOENT), Ok))
    }

    async fn list(&self, path: &str, from: &str) -> RemoteResult<Page> {
        self.carry_out(|inner| {
            let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
            let names = inner.entries.iter().filter_map(|(path, thing)| {
                let name = path.strip_prefix(&prefix).filter(|name| !name.is_empty() && !name.contains('/'))?;
                (name >= from).then(|| Entry { name: name.to_owned(), status: status(thing) })
            });
            let mut entries: Vec<Entry> = names.take(PAGE + 1).collect();
            let next = (entries.len() > PAGE).then(|| entries.pop().expect("more than a page").name);
            Ok(Page { entries, next })
        })
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> RemoteResult<Bytes> {
        self.carry_out(|inner| {
            let content = &inner.file(path)?.content;
            let end = (offset.saturating_add(length)).min(content.len() as u64) as usize;
            let start = (offset as usize).min(end);
            Ok(Bytes::copy_from_slice(&content[start..end]))
        })
    }

    async fn write(&self, path: &str, batch: &[DirtyRange]) -> RemoteResult<()> {
        self.carry_out(|inner| {
            inner.writes += 1;
            inner.change(path, |content| put(content, batch))
        })
        .map(drop)
    }

    async fn append(&self, path: &str, block: &AppendBlock) -> RemoteResult<(u64, Status)> {
        self.carry_out(|inner| {
            let key = (block.file, block.number);
            if let (Some(_), Some(start)) = (block.retry_from, inner.appended.get(&key).copied()) {
                return Ok((start, status(inner.file(path)?)));
            }
            let start = inner.file(path)?.content.len() as u64;
            let status = inner.change(path, |content| content.extend_from_slice(&block.content))?;
            inner.appended.insert(key, start);
            Ok((start, status))
        })
    }

    async fn create(&self, path: &str) -> RemoteResult<()> {
        self.carry_out(|inner| inner.make(path, Kind::File))
    }

    async fn create_with(&self, path: &str, batch: &[DirtyRange]) -> RemoteResult<bool> {
        self.carry_out(|inner| {
            inner.make(path, Kind::File)?;
            inner.writes += 1;
            inner.change(path, |content| put(content, batch))
        })
        .map(|_| true)
    }

    async fn create_directory(&self, path: &str) -> RemoteResult<()> {
        self.carry_out(|inner| inner.make(path, Kind::Directory))
    }

    async fn read_link(&self, path: &str) -> RemoteResult<Vec<u8>> {
        self.carry_out(|inner| match inner.entries.get(path) {
            Some(thing) if thing.kind == Kind::Link => Ok(thing.content.clone()),
            Some(_) => permanent(libc::EINVAL),
            None => permanent(libc::ENOENT),
        })
    }

    async fn create_link(&self, path: &str, text: &[u8]) -> RemoteResult<()> {
        self.carry_out(|inner| {
            inner.make(path, Kind::Link)?;
            inner.entries.get_mut(path).expect("just made").content = text.to_vec();
            Ok(())
        })
    }

    async fn remove(&self, path: &str, kind: Kind) -> RemoteResult<()> {
        self.carry_out(|inner| {
            let below = format!("{path}/");
            let is_directory = |kind| kind == Kind::Directory;
            if inner.entries.get(path).is_none_or(|thing| is_directory(thing.kind) != is_directory(kind)) {
                return permanent(libc::ENOENT);
            }
            if inner.entries.keys().any(|path| path.starts_with(&below)) {
                return permanent(libc::ENOTEMPTY);
            }
            inner.entries.remove(path);
            Ok(())
        })
    }

    async fn rename(&self, from: &str, to: &str, _kind: Kind, replace: bool) -> RemoteResult<()> {
        self.carry_out(|inner| {
            if !inner.entries.contains_key(from) {
                return permanent(libc::ENOENT);
            }
            if !replace && inner.entries.contains_key(to) {
                return permanent(libc::EEXIST);
            }
            let below = format!("{from}/");
            let moved: Vec<String> =
                inner.entries.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
            for path in moved {
                let thing = inner.entries.remove(&path).expect("just found");
                inner.entries.insert(format!("{to}{}", &path[from.len()..]), thing);
            }
            Ok(())
        })
    }

    async fn resize(&self, path: &str, length: u64) -> RemoteResult<()> {
        self.carry_out(|inner| inner.change(path, |content| content.resize(length as usize, 0))).map(drop)
    }

    async fn set_modified(&self, path: &str, modified: SystemTime) -> RemoteResult<()> {
        self.carry_out(|inner| {
            inner.entries.get_mut(path).map_or_else(
                || permanent(libc::ENOENT),
                |thing| {
                    thing.modified = modified;
                    Ok(())
                },
            )
        })
    }

    async fn sync(&self, path: &str) -> RemoteResult<()> {
        self.carry_out(|inner| if inner.entries.contains_key(path) { Ok(()) } else { permanent(libc::ENOENT) })
    }

    async fn space_info(&self) -> RemoteResult<SpaceInfo> {
        self.carry_out(|inner| {
            let used = inner.entries.values().map(|thing| thing.content.len() as u64).sum();
            Ok(SpaceInfo { used, quota: Some(inner.quota) })
        })
    }
}
