//! Downloads: the first 32 MiB reveal the size, the rest follows in ranges of 8 MiB over several connections. Bytes go
//! to a hidden file beside the destination, which is renamed when it is complete. A download that fails or is dropped
//! leaves nothing behind; only a killed process leaves its hidden file.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::{Method, Response, StatusCode};

use super::partial_file::{Destination, PartialFile};
use super::properties::file_properties_of;
use super::{FileProperties, FileService, Progress, md5_base64, persistently, read};
use crate::ClientError;

const FIRST_RANGE: u64 = 32 * 1024 * 1024;
const RANGE: u64 = 8 * 1024 * 1024;
/// Largest range for which the service returns an MD5 digest.
const VALIDATED_RANGE: u64 = 4 * 1024 * 1024;
/// Bytes per write to disk.
const WRITE_SIZE: u64 = 1024 * 1024;

/// Result of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub properties: FileProperties,
    pub content_range: Option<String>,
    pub bytes: u64,
}

/// Byte range to fetch, both ends inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownloadRange {
    pub start: u64,
    pub end: Option<u64>,
}

impl FileService {
    /// Downloads the file `path` to `destination`, replacing it.
    pub async fn download(
        &self,
        share: &str,
        path: &str,
        range: DownloadRange,
        destination: Destination<'_>,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<Download, ClientError> {
        let draft = PartialFile::new(destination)?;
        let target = (share, path);
        let FirstRange { download, stored, counter } =
            persistently(|| self.first(target, range, &draft, progress)).await?;
        let etag = download.properties.properties.etag.as_deref();
        let step = self.range();
        let starts = (stored..download.bytes).step_by(step as usize);
        stream::iter(starts)
            .map(|start| {
                let part = (start, step.min(download.bytes - start));
                let (draft, counter) = (&draft, &counter);
                // After a broken connection the range is fetched again from its start.
                persistently(move || self.part(target, range.start, part, draft, etag, counter))
            })
            .buffer_unordered(connections.max(1))
            .try_collect::<Vec<()>>()
            .await?;
        draft.finish(download.bytes)?;
        Ok(download)
    }

    /// Fetches the first range, which reveals the file's size.
    async fn first<'a>(
        &self,
        target: (&str, &str),
        range: DownloadRange,
        draft: &PartialFile,
        progress: Progress<'a>,
    ) -> Result<FirstRange<'a>, ClientError> {
        let path = target.1;
        let whole_end = range.end.unwrap_or(u64::MAX);
        let first = if self.validating { VALIDATED_RANGE } else { FIRST_RANGE };
        let first_end = whole_end.min(range.start.saturating_add(first - 1));
        let response = self.get_range(target, range.start, first_end).await?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && range == DownloadRange::default() {
            // An empty file refuses any range. Its properties come with a request without one.
            let response = self.send(Method::GET, target, &[], &[], Bytes::new()).await?;
            let answer = self.read(response, target).await?;
            let bytes = answer.body.len() as u64;
            draft.write(vec![answer.body.clone()], 0).await?;
            let properties = file_properties_of(&answer.headers, bytes);
            let download = Download { properties, content_range: None, bytes };
            return Ok(FirstRange { download, stored: bytes, counter: Counter::new(bytes, progress) });
        }
        if !response.status().is_success() {
            return Err(self.read(response, target).await.err().unwrap_or_else(|| unexpected(path)));
        }
        let content_range = response.headers().get("content-range").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let total = match (&content_range, response.content_length()) {
            (Some(text), _) => total_of(text).ok_or_else(|| unexpected(path))?,
            (None, Some(length)) if range == DownloadRange::default() => length,
            _ => return Err(unexpected(path)),
        };
        let properties = file_properties_of(response.headers(), total);
        let bytes = total.min(whole_end.saturating_add(1)).saturating_sub(range.start);
        // Without `Content-Range` the whole file is in this response.
        let stored = if content_range.is_some() { bytes.min(first) } else { bytes };
        let counter = Counter::new(bytes, progress);
        self.store(response, draft, (0, stored), path, &counter).await?;
        Ok(FirstRange { download: Download { properties, content_range, bytes }, stored, counter })
    }

    async fn get_range(&self, target: (&str, &str), start: u64, end: u64) -> Result<Response, ClientError> {
        let range = format!("bytes={start}-{end}");
        let mut headers = vec![("x-ms-range", range.as_str())];
        if self.validating {
            headers.push(("x-ms-range-get-content-md5", "true"));
        }
        self.send(Method::GET, target, &[], &headers, Bytes::new()).await
    }

    fn range(&self) -> u64 {
        if self.validating { VALIDATED_RANGE } else { RANGE }
    }

    /// Fetches one later range.
    async fn part(
        &self,
        target: (&str, &str),
        offset: u64,
        (start, length): (u64, u64),
        draft: &PartialFile,
        etag: Option<&str>,
        counter: &Counter<'_>,
    ) -> Result<(), ClientError> {
        let (from, to) = (offset + start, offset + start + length - 1);
        let response = self.get_range(target, from, to).await?;
        if !response.status().is_success() {
            return Err(self.read(response, target).await.err().unwrap_or_else(|| unexpected(target.1)));
        }
        let same = response.headers().get("etag").and_then(|value| value.to_str().ok()) == etag;
        if !same {
            return Err(ClientError::ChangedDuringDownload { name: target.1.to_owned() });
        }
        self.store(response, draft, (start, length), target.1, counter).await
    }

    /// Writes a body of exactly `length` bytes to the partial file at `start`.
    async fn store(
        &self,
        mut response: Response,
        draft: &PartialFile,
        (start, length): (u64, u64),
        name: &str,
        counter: &Counter<'_>,
    ) -> Result<(), ClientError> {
        if self.validating {
            // Small enough for memory, so nothing is written before the digest is checked.
            let answer = read(&self.transport, response).await?;
            if answer.body.len() as u64 != length {
                return Err(ClientError::ChangedDuringDownload { name: name.to_owned() });
            }
            if answer.header("content-md5").is_some_and(|md5| md5 != md5_base64(&answer.body)) {
                return Err(ClientError::Damaged { name: name.to_owned() });
            }
            draft.write(vec![answer.body], start).await?;
            counter.add(length);
            return Ok(());
        }
        // Chunks are written as they arrived; joining them would copy every byte once more.
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
                // Shorter than announced: the file was truncated meanwhile.
                return (written == length)
                    .then_some(())
                    .ok_or_else(|| ClientError::ChangedDuringDownload { name: name.to_owned() });
            }
        }
    }
}

/// Size and properties from the first range, and the bytes it brought.
struct FirstRange<'a> {
    download: Download,
    stored: u64,
    counter: Counter<'a>,
}

struct Counter<'a> {
    done: AtomicU64,
    total: u64,
    progress: Progress<'a>,
}

impl<'a> Counter<'a> {
    fn new(total: u64, progress: Progress<'a>) -> Counter<'a> {
        Counter { done: AtomicU64::new(0), total, progress }
    }

    fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A retried range counts twice.
        (self.progress)(done.min(self.total), self.total);
    }
}

/// Total of a `Content-Range`: `bytes 0-9/100` is 100.
fn total_of(content_range: &str) -> Option<u64> {
    content_range.rsplit_once('/')?.1.parse().ok()
}

fn unexpected(name: &str) -> ClientError {
    ClientError::UnexpectedFileAnswer { request: format!("download {name}") }
}
