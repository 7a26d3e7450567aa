//! Downloads: the first 32 MiB tell the size, the rest follows in ranges of 8 MiB over several connections. The bytes
//! go to a hidden file beside the destination, which takes the destination's name when it is complete; a failed
//! download leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::{Method, Response, StatusCode};

use super::{FileProperties, FileService, Progress, properties_of, read};
use crate::ClientError;

const FIRST_RANGE: u64 = 32 * 1024 * 1024;
const RANGE: u64 = 8 * 1024 * 1024;
/// Written to disk at once, so that each call to the file system is worth it.
const WRITE_SIZE: u64 = 1024 * 1024;
const TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// A finished download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub properties: FileProperties,
    pub content_range: Option<String>,
    pub bytes: u64,
}

/// The part of a file to fetch; both ends belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownloadRange {
    pub start: u64,
    pub end: Option<u64>,
}

impl FileService {
    /// Fetches the file `path` into `destination`, replacing what is there.
    pub async fn download(
        &self,
        share: &str,
        path: &str,
        range: DownloadRange,
        destination: &Path,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<Download, ClientError> {
        let draft = Draft::new(destination)?;
        let whole_end = range.end.unwrap_or(u64::MAX);
        let first_end = whole_end.min(range.start.saturating_add(FIRST_RANGE - 1));
        let place = (share, path);
        let response = self.get_range(place, range.start, first_end).await?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && range == DownloadRange::default() {
            // How an empty file answers a range. Its properties come with the plain request.
            let response = self.send(Method::GET, place, &[], &[], Bytes::new()).await?;
            let answer = read(&self.transport, response).await?;
            draft.write(vec![answer.body.clone()], 0).await?;
            let bytes = answer.body.len() as u64;
            draft.finish(bytes)?;
            return Ok(Download { properties: properties_of(&answer.headers, bytes), content_range: None, bytes });
        }
        if !response.status().is_success() {
            return Err(read(&self.transport, response).await.err().unwrap_or_else(|| unexpected(path)));
        }
        let content_range = response.headers().get("content-range").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let total = match (&content_range, response.content_length()) {
            (Some(text), _) => total_of(text).ok_or_else(|| unexpected(path))?,
            (None, Some(length)) if range == DownloadRange::default() => length,
            _ => return Err(unexpected(path)),
        };
        let properties = properties_of(response.headers(), total);
        let wanted = total.min(whole_end.saturating_add(1)).saturating_sub(range.start);
        // Without a content range the whole file comes in this one answer.
        let first = if content_range.is_some() { wanted.min(FIRST_RANGE) } else { wanted };
        let counter = Counter { done: AtomicU64::new(0), total: wanted, progress };
        self.store(response, &draft, 0, first, path, &counter).await?;

        let etag = properties.etag.as_deref();
        let starts = (first..wanted).step_by(RANGE as usize);
        stream::iter(starts)
            .map(|start| {
                let (draft, counter) = (&draft, &counter);
                let length = RANGE.min(wanted - start);
                async move { self.part(place, range.start, (start, length), draft, etag, counter).await }
            })
            .buffer_unordered(connections.max(1))
            .try_collect::<Vec<()>>()
            .await?;
        draft.finish(wanted)?;
        Ok(Download { properties, content_range, bytes: wanted })
    }

    async fn get_range(&self, place: (&str, &str), start: u64, end: u64) -> Result<Response, ClientError> {
        let range = format!("bytes={start}-{end}");
        self.send(Method::GET, place, &[], &[("x-ms-range", &range)], Bytes::new()).await
    }

    /// One later range; a broken connection is tried again from its start.
    async fn part(
        &self,
        place: (&str, &str),
        offset: u64,
        (start, length): (u64, u64),
        draft: &Draft,
        etag: Option<&str>,
        counter: &Counter<'_>,
    ) -> Result<(), ClientError> {
        let mut tried = 1;
        loop {
            let attempt = async {
                let (from, to) = (offset + start, offset + start + length - 1);
                let response = self.get_range(place, from, to).await?;
                if !response.status().is_success() {
                    return Err(read(&self.transport, response).await.err().unwrap_or_else(|| unexpected(place.1)));
                }
                let same = response.headers().get("etag").and_then(|value| value.to_str().ok()) == etag;
                if !same {
                    return Err(ClientError::ChangedDuringDownload { name: place.1.to_owned() });
                }
                self.store(response, draft, start, length, place.1, counter).await
            };
            match attempt.await {
                Err(error) if tried < TRIES && error.is_transient() => {
                    tokio::time::sleep(RETRY_PAUSE * tried).await;
                    tried += 1;
                }
                result => return result,
            }
        }
    }

    /// Writes a body of exactly `length` bytes at `start` of the draft.
    async fn store(
        &self,
        mut response: Response,
        draft: &Draft,
        start: u64,
        length: u64,
        name: &str,
        counter: &Counter<'_>,
    ) -> Result<(), ClientError> {
        // Pieces are written as they came; gathering them in one buffer would copy every byte once more.
        let (mut pieces, mut held, mut written) = (Vec::new(), 0, 0);
        loop {
            let chunk = self.transport.chunk(&mut response).await?;
            let ended = chunk.is_none();
            held += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            pieces.extend(chunk);
            if written + held > length {
                return Err(unexpected(name));
            }
            if held > 0 && (ended || held >= WRITE_SIZE) {
                draft.write(std::mem::take(&mut pieces), start + written).await?;
                written += held;
                counter.add(held);
                held = 0;
            }
            if ended {
                // Shorter than announced: the file was cut while it was read.
                return (written == length)
                    .then_some(())
                    .ok_or_else(|| ClientError::ChangedDuringDownload { name: name.to_owned() });
            }
        }
    }
}

struct Counter<'a> {
    done: AtomicU64,
    total: u64,
    progress: Progress<'a>,
}

impl Counter<'_> {
    fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(done.min(self.total), self.total);
    }
}

/// The hidden file a download grows in. Dropped before `finish`, it disappears.
struct Draft {
    file: Arc<File>,
    path: PathBuf,
    destination: PathBuf,
    finished: bool,
}

impl Draft {
    fn new(destination: &Path) -> Result<Draft, ClientError> {
        let fail = |source| ClientError::WriteFile { path: destination.to_owned(), source };
        let name = destination.file_name().ok_or_else(|| fail(std::io::Error::other("it names no file")))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".corro-{}", std::process::id()));
        let path = destination.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(fail)?;
        Ok(Draft { file: Arc::new(file), path, destination: destination.to_owned(), finished: false })
    }

    /// Writes the pieces one after the other, from `at` on.
    async fn write(&self, pieces: Vec<Bytes>, mut at: u64) -> Result<(), ClientError> {
        let file = self.file.clone();
        let write = move || {
            pieces.iter().try_for_each(|piece| {
                file.write_all_at(piece, at)?;
                at += piece.len() as u64;
                Ok(())
            })
        };
        let written: Result<std::io::Result<()>, _> = tokio::task::spawn_blocking(write).await;
        written
            .expect("writing a file does not panic")
            .map_err(|source| ClientError::WriteFile { path: self.destination.clone(), source })
    }

    fn finish(mut self, length: u64) -> Result<(), ClientError> {
        let place = || -> std::io::Result<()> {
            self.file.set_len(length)?;
            // Not synced: a download can be repeated, and waiting for the disk would cost a fifth of its time.
            fs::rename(&self.path, &self.destination)
        };
        place().map_err(|source| ClientError::WriteFile { path: self.destination.clone(), source })?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the download's own error is the one to report.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// `bytes 0-9/100` is 100.
fn total_of(content_range: &str) -> Option<u64> {
    content_range.rsplit_once('/')?.1.parse().ok()
}

fn unexpected(name: &str) -> ClientError {
    ClientError::UnexpectedFileAnswer { request: format!("download {name}") }
}
