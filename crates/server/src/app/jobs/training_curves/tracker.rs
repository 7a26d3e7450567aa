//! What was read of one job, and how far. Reads files of shares, beneath the handle of each, from where it stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use corro_metrics::curve_file::CurveFileReader;
use corro_metrics::query::{CurveQuery, QueryResult};
use corro_metrics::tfevents::EventFileReader;
use corro_metrics::{Curves, MetricStream};
use corro_model::Timestamp;
use corro_shares::{Entry, PageRequest, Share, SharePath};

/// One question reads for no longer; whoever asked asks again.
const SLICE: Duration = Duration::from_millis(400);
const BLOCK: usize = 256 * 1024;
/// Others that ask within this time get what was read last.
const FRESH: Duration = Duration::from_millis(300);
/// Directories are looked through no more often.
const BETWEEN_LISTINGS: Duration = Duration::from_secs(1);
/// What was written since a look that is so near was written now.
const NEAR: Duration = Duration::from_secs(5);
/// Of a job's output: deeper, and beyond so many, nobody puts files of figures.
const MOST_DEPTH: usize = 3;
const MOST_DIRECTORIES: usize = 64;
const MOST_ENTRIES: usize = 1000;
const MOST_FILES: usize = 2048;

/// A directory that the job writes to.
pub struct Root {
    pub kind: Kind,
    pub share: Share,
    pub inside: String,
}

/// What a root is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Logs,
    /// What nodes wrote down of the curves in the logs: the same, by who said it, and much shorter.
    Curves,
    Output,
}

pub struct Tracker {
    birth: u64,
    curves: Curves,
    /// By the number of their root and their path.
    files: BTreeMap<(usize, String), Followed>,
    listed: Option<Instant>,
    looked: Option<Instant>,
    /// Nodes wrote down what the logs say: those need not be read.
    written_down: bool,
    /// Files were not read to their end.
    more: bool,
    /// The job has ended and everything is read.
    done: bool,
}

struct Followed {
    reader: Reader,
    offset: u64,
}

enum Reader {
    Lines(MetricStream),
    Events(EventFileReader),
    Records(CurveFileReader),
}

impl Tracker {
    pub fn new(birth: u64) -> Tracker {
        let (curves, files) = (Curves::default(), BTreeMap::new());
        Tracker { birth, curves, files, listed: None, looked: None, written_down: false, more: false, done: false }
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        *self = Tracker::new(self.birth.wrapping_add(1 << 16));
    }

    pub fn answer(&self, question: &CurveQuery) -> QueryResult {
        self.curves.query(question, self.birth)
    }

    /// Reads what is new, for a moment. Is there more?
    pub fn look(&mut self, roots: impl FnOnce() -> Vec<Root>, shared: bool, ended: bool, now: Timestamp) -> bool {
        let began = Instant::now();
        let since = self.looked.map(|looked| began - looked);
        if self.done || (since.is_some_and(|since| since < FRESH) && !self.more && !ended) {
            return self.more;
        }
        let roots = roots();
        let listed = self.listed.is_some_and(|listed| began - listed < BETWEEN_LISTINGS);
        if !listed || ended && !self.more {
            self.find(&roots, shared);
            self.listed = Some(began);
        }
        let time = since.filter(|since| *since < NEAR && !self.more && !ended).map(|_| now.millis());
        self.more = false;
        let mut buffer = vec![0; BLOCK];
        let Tracker { files, curves, .. } = self;
        let mut shrunk = false;
        for ((root, path), followed) in files.iter_mut() {
            let Some(root) = roots.get(*root) else { continue };
            match followed.read(&root.share, path, (time, began), &mut buffer, curves) {
                Read::ToTheEnd => {}
                Read::More => self.more = true,
                Read::Shrunk => shrunk = true,
            }
        }
        if shrunk {
            // It is another training's file now.
            self.forget();
            return true;
        }
        if ended && !self.more {
            for followed in self.files.values_mut() {
                match &mut followed.reader {
                    Reader::Lines(stream) => stream.finish(&mut self.curves),
                    Reader::Records(records) => records.finish(&mut self.curves),
                    // What is not whole now never will be.
                    Reader::Events(_) => {}
                }
            }
            self.files.clear();
            self.done = true;
        }
        self.looked = Some(Instant::now());
        self.more
    }

    /// Looks for files that are new.
    fn find(&mut self, roots: &[Root], shared: bool) {
        let written = |root: &Root| {
            root.kind == Kind::Curves && entries(&root.share, &root.inside).iter().any(|entry| is_record(&entry.name))
        };
        if !self.written_down && roots.iter().any(written) {
            // What the logs have told so far is told anew, by who said it.
            self.forget();
            self.written_down = true;
        }
        for (number, root) in roots.iter().enumerate() {
            if self.written_down && root.kind == Kind::Logs {
                continue;
            }
            let mut directories = vec![(root.inside.clone(), 0)];
            let mut seen = 0;
            while let Some((directory, depth)) = directories.pop() {
                seen += 1;
                for entry in entries(&root.share, &directory) {
                    let path = format!("{directory}/{}", entry.name);
                    if entry.kind() == corro_shares::Kind::Directory {
                        if root.kind == Kind::Output
                            && depth < MOST_DEPTH
                            && seen + directories.len() < MOST_DIRECTORIES
                        {
                            directories.push((path, depth + 1));
                        }
                        continue;
                    }
                    let run = directory[root.inside.len()..].trim_matches('/');
                    let reader = match root.kind {
                        Kind::Logs => log_stream(&entry.name, shared).map(Reader::Lines),
                        Kind::Curves => is_record(&entry.name).then(|| Reader::Records(CurveFileReader::default())),
                        Kind::Output => file_reader(&entry.name, run),
                    };
                    let key = (number, path);
                    if let (Some(reader), true) = (reader, self.files.len() < MOST_FILES) {
                        self.files.entry(key).or_insert(Followed { reader, offset: 0 });
                    }
                }
            }
        }
    }
}

enum Read {
    ToTheEnd,
    More,
    Shrunk,
}

impl Followed {
    fn read(
        &mut self,
        share: &Share,
        path: &str,
        (time, began): (Option<i64>, Instant),
        buffer: &mut [u8],
        curves: &mut Curves,
    ) -> Read {
        let opened = SharePath::parse(path).ok().and_then(|path| share.open_file(&path).ok());
        // One that was removed has nothing more to say.
        let Some((file, stat)): Option<(File, _)> = opened else { return Read::ToTheEnd };
        if stat.len < self.offset {
            return Read::Shrunk;
        }
        loop {
            if began.elapsed() > SLICE {
                return Read::More;
            }
            match file.read_at(buffer, self.offset) {
                Ok(0) | Err(_) => return Read::ToTheEnd,
                Ok(n) => {
                    match &mut self.reader {
                        Reader::Lines(stream) => stream.push(&buffer[..n], time, curves),
                        Reader::Events(events) => events.push(&buffer[..n], curves),
                        Reader::Records(records) => records.push(&buffer[..n], curves),
                    }
                    self.offset += n as u64;
                }
            }
        }
    }
}

fn entries(share: &Share, directory: &str) -> Vec<Entry> {
    let page = PageRequest { prefix: "", from: "", limit: MOST_ENTRIES, described: false };
    let Ok(path) = SharePath::parse(directory) else { return Vec::new() };
    share.list_page(&path, page).map(|page| page.entries).unwrap_or_default()
}

fn is_record(name: &str) -> bool {
    name.ends_with(".jsonl")
}

/// Who writes a log is in its name: `model::layout` gives it.
fn log_stream(name: &str, shared: bool) -> Option<MetricStream> {
    let rest = name.strip_prefix("stdout").or_else(|| name.strip_prefix("stderr"))?.strip_suffix(".txt")?;
    if rest.is_empty() {
        return Some(MetricStream::log(None, shared));
    }
    let number = rest.strip_prefix("-wk-").or_else(|| rest.strip_prefix('-'))?;
    Some(MetricStream::log(Some(number.parse().ok()?), false))
}

/// A file of figures in an output directory; `run` is where it lies below that.
fn file_reader(name: &str, run: &str) -> Option<Reader> {
    match name {
        "metrics.jsonl" => Some(Reader::Lines(MetricStream::file())),
        _ if name.contains(".tfevents.") => Some(Reader::Events(EventFileReader::for_run(run))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_processes_are_read_and_no_others() {
        for name in ["stdout.txt", "stderr.txt", "stdout-3.txt", "stderr-wk-0.txt"] {
            assert!(log_stream(name, true).is_some(), "{name}");
        }
        for name in ["execution.log", "stdout-job_prep.txt", "stdout-ps-0.txt", "stdout-x.txt", "stdout.txt.1"] {
            assert!(log_stream(name, true).is_none(), "{name}");
        }
    }
}
