//! Incremental reader of one job's curves. Reads new data from files of shares, opened below the handle of the share.

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

/// Maximum time of one query; the client asks again for the rest.
const MAX_READ_TIME: Duration = Duration::from_millis(400);
const READ_BLOCK_BYTES: usize = 256 * 1024;
/// Queries within this time get the last result.
const CACHE_TTL: Duration = Duration::from_millis(300);
/// Minimum time between directory listings.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);
/// Data read within this time after the last read is stamped with the current time.
const MAX_TIMESTAMP_ERROR: Duration = Duration::from_secs(5);
/// Limits on the search in a job's output directories.
const MAX_DEPTH: usize = 3;
const MAX_DIRECTORIES: usize = 64;
const MAX_ENTRIES: usize = 1000;
const MAX_FILES: usize = 2048;

/// Directory that the job writes to.
pub struct OutputRoot {
    pub kind: RootKind,
    pub share: Share,
    pub inside: String,
}

/// Content of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    Logs,
    /// Curves that agents extracted from the logs: the same values, attributed to ranks, and much smaller.
    Curves,
    Output,
}

pub struct CurveReader {
    generation: u64,
    curves: Curves,
    /// By root index and path.
    files: BTreeMap<(usize, String), FollowedFile>,
    last_listing: Option<Instant>,
    last_read: Option<Instant>,
    /// Curve files exist, so logs are not read.
    has_curve_files: bool,
    /// Some files were not read to their end.
    more: bool,
    /// The job has ended and everything was read.
    is_complete: bool,
}

struct FollowedFile {
    parser: FileParser,
    offset: u64,
}

enum FileParser {
    Lines(MetricStream),
    Events(EventFileReader),
    Records(CurveFileReader),
}

impl CurveReader {
    pub fn new(generation: u64) -> CurveReader {
        let (curves, files) = (Curves::default(), BTreeMap::new());
        CurveReader {
            generation,
            curves,
            files,
            last_listing: None,
            last_read: None,
            has_curve_files: false,
            more: false,
            is_complete: false,
        }
    }

    /// Starts over with a new generation.
    pub fn reset(&mut self) {
        *self = CurveReader::new(self.generation.wrapping_add(1 << 16));
    }

    pub fn answer(&self, question: &CurveQuery) -> QueryResult {
        self.curves.query(question, self.generation)
    }

    /// Reads new data for a bounded time. Returns whether there is more.
    pub fn read_new(
        &mut self,
        roots: impl FnOnce() -> Vec<OutputRoot>,
        shared: bool,
        ended: bool,
        now: Timestamp,
    ) -> bool {
        let began = Instant::now();
        let since = self.last_read.map(|last_read| began - last_read);
        if self.is_complete || (since.is_some_and(|since| since < CACHE_TTL) && !self.more && !ended) {
            return self.more;
        }
        let roots = roots();
        let last_listing = self.last_listing.is_some_and(|last_listing| began - last_listing < LISTING_INTERVAL);
        if !last_listing || ended && !self.more {
            self.find_files(&roots, shared);
            self.last_listing = Some(began);
        }
        let time = since.filter(|since| *since < MAX_TIMESTAMP_ERROR && !self.more && !ended).map(|_| now.millis());
        self.more = false;
        let mut buffer = vec![0; READ_BLOCK_BYTES];
        let CurveReader { files, curves, .. } = self;
        let mut shrunk = false;
        for ((root, path), followed) in files.iter_mut() {
            let Some(root) = roots.get(*root) else { continue };
            match followed.read(&root.share, path, (time, began), &mut buffer, curves) {
                ReadOutcome::EndOfFile => {}
                ReadOutcome::More => self.more = true,
                ReadOutcome::Shrunk => shrunk = true,
            }
        }
        if shrunk {
            // The file was replaced by that of another run.
            self.reset();
            return true;
        }
        if ended && !self.more {
            for followed in self.files.values_mut() {
                match &mut followed.parser {
                    FileParser::Lines(stream) => stream.finish(&mut self.curves),
                    FileParser::Records(records) => records.finish(&mut self.curves),
                    // An incomplete record at the end of a file is dropped.
                    FileParser::Events(_) => {}
                }
            }
            self.files.clear();
            self.is_complete = true;
        }
        self.last_read = Some(Instant::now());
        self.more
    }

    /// Finds new files.
    fn find_files(&mut self, roots: &[OutputRoot], shared: bool) {
        let written = |root: &OutputRoot| {
            root.kind == RootKind::Curves
                && entries(&root.share, &root.inside).iter().any(|entry| is_record(&entry.name))
        };
        if !self.has_curve_files && roots.iter().any(written) {
            // Values read from the logs are dropped: the curve files have them, attributed to ranks.
            self.reset();
            self.has_curve_files = true;
        }
        for (number, root) in roots.iter().enumerate() {
            if self.has_curve_files && root.kind == RootKind::Logs {
                continue;
            }
            let mut directories = vec![(root.inside.clone(), 0)];
            let mut seen = 0;
            while let Some((directory, depth)) = directories.pop() {
                seen += 1;
                for entry in entries(&root.share, &directory) {
                    let path = format!("{directory}/{}", entry.name);
                    if entry.kind() == corro_shares::Kind::Directory {
                        if root.kind == RootKind::Output
                            && depth < MAX_DEPTH
                            && seen + directories.len() < MAX_DIRECTORIES
                        {
                            directories.push((path, depth + 1));
                        }
                        continue;
                    }
                    let run = directory[root.inside.len()..].trim_matches('/');
                    let parser = match root.kind {
                        RootKind::Logs => log_stream(&entry.name, shared).map(FileParser::Lines),
                        RootKind::Curves => {
                            is_record(&entry.name).then(|| FileParser::Records(CurveFileReader::default()))
                        }
                        RootKind::Output => output_parser(&entry.name, run),
                    };
                    let key = (number, path);
                    if let (Some(parser), true) = (parser, self.files.len() < MAX_FILES) {
                        self.files.entry(key).or_insert(FollowedFile { parser, offset: 0 });
                    }
                }
            }
        }
    }
}

enum ReadOutcome {
    EndOfFile,
    More,
    Shrunk,
}

impl FollowedFile {
    fn read(
        &mut self,
        share: &Share,
        path: &str,
        (time, began): (Option<i64>, Instant),
        buffer: &mut [u8],
        curves: &mut Curves,
    ) -> ReadOutcome {
        let opened = SharePath::parse(path).ok().and_then(|path| share.open_file(&path).ok());
        // A removed file has no more data.
        let Some((file, stat)): Option<(File, _)> = opened else { return ReadOutcome::EndOfFile };
        if stat.len < self.offset {
            return ReadOutcome::Shrunk;
        }
        loop {
            if began.elapsed() > MAX_READ_TIME {
                return ReadOutcome::More;
            }
            match file.read_at(buffer, self.offset) {
                Ok(0) | Err(_) => return ReadOutcome::EndOfFile,
                Ok(n) => {
                    match &mut self.parser {
                        FileParser::Lines(stream) => stream.push(&buffer[..n], time, curves),
                        FileParser::Events(events) => events.push(&buffer[..n], curves),
                        FileParser::Records(records) => records.push(&buffer[..n], curves),
                    }
                    self.offset += n as u64;
                }
            }
        }
    }
}

fn entries(share: &Share, directory: &str) -> Vec<Entry> {
    let page = PageRequest { prefix: "", from: "", limit: MAX_ENTRIES, described: false };
    let Ok(path) = SharePath::parse(directory) else { return Vec::new() };
    share.list_page(&path, page).map(|page| page.entries).unwrap_or_default()
}

fn is_record(name: &str) -> bool {
    name.ends_with(".jsonl")
}

/// Parser of a process log. The name identifies the rank (see `model::layout`).
fn log_stream(name: &str, shared: bool) -> Option<MetricStream> {
    let rest = name.strip_prefix("stdout").or_else(|| name.strip_prefix("stderr"))?.strip_suffix(".txt")?;
    if rest.is_empty() {
        return Some(MetricStream::log(None, shared));
    }
    let number = rest.strip_prefix("-wk-").or_else(|| rest.strip_prefix('-'))?;
    Some(MetricStream::log(Some(number.parse().ok()?), false))
}

/// Parser of a metrics file in an output directory; `run` is its path below that directory.
fn output_parser(name: &str, run: &str) -> Option<FileParser> {
    match name {
        "metrics.jsonl" => Some(FileParser::Lines(MetricStream::file())),
        _ if name.contains(".tfevents.") => Some(FileParser::Events(EventFileReader::for_run(run))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_process_logs_are_parsed() {
        for name in ["stdout.txt", "stderr.txt", "stdout-3.txt", "stderr-wk-0.txt"] {
            assert!(log_stream(name, true).is_some(), "{name}");
        }
        for name in ["execution.log", "stdout-job_prep.txt", "stdout-ps-0.txt", "stdout-x.txt", "stdout.txt.1"] {
            assert!(log_stream(name, true).is_none(), "{name}");
        }
    }
}
