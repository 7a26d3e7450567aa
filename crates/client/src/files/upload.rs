//! Uploads: creates the file with its final length, then writes ranges of 4 MiB over several connections. Memory use is
//! one range per connection.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use rustix::buffer::spare_capacity;
use rustix::io::pread;

use super::settings::borrowed;
use super::{FileService, FileSettings, Progress, md5_base64, persistently};
use crate::ClientError;

/// Azure's limit per request.
const RANGE_BYTES: u64 = 4 * 1024 * 1024;
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(3);

impl FileService {
    /// Creates or replaces the file `path` with the content of `source`. Its directory must exist.
    pub async fn upload(
        &self,
        share: &str,
        path: &str,
        source: &Path,
        settings: &FileSettings,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<u64, ClientError> {
        let (file, total) = open_source(source)?;
        self.create_file((share, path), total, settings).await?;
        let done = AtomicU64::new(0);
        progress(0, total);
        let starts = (0..total).step_by(RANGE_BYTES as usize);
        let sent = stream::iter(starts)
            .map(|start| {
                let (file, done) = (file.clone(), &done);
                async move {
                    let length = RANGE_BYTES.min(total - start);
                    let content = read_range(file, start, length, source).await?;
                    self.write_range(share, path, start, content).await?;
                    progress(done.fetch_add(length, Ordering::Relaxed) + length, total);
                    Ok::<(), ClientError>(())
                }
            })
            .buffer_unordered(connections.max(1))
            .try_collect::<Vec<()>>()
            .await;
        if let Err(error) = sent {
            // A partial file would be taken for a complete one, so it is deleted.
            let _ = tokio::time::timeout(CLEANUP_TIMEOUT, self.delete_file(share, path)).await;
            return Err(error);
        }
        Ok(total)
    }

    async fn create_file(&self, target: (&str, &str), length: u64, settings: &FileSettings) -> Result<(), ClientError> {
        let length = length.to_string();
        let settings = settings.headers();
        let mut headers = vec![("x-ms-type", "file"), ("x-ms-content-length", length.as_str())];
        headers.extend(borrowed(&settings));
        if !headers.iter().any(|(name, _)| *name == "x-ms-content-type") {
            headers.extend(guess_content_type(target.1).map(|kind| ("x-ms-content-type", kind)));
        }
        self.request(Method::PUT, target, &[], &headers, Bytes::new()).await.map(drop)
    }

    /// Writes one range. Idempotent, so it is retried after a broken connection.
    async fn write_range(&self, share: &str, path: &str, start: u64, content: Bytes) -> Result<(), ClientError> {
        let range = format!("bytes={start}-{}", start + content.len() as u64 - 1);
        let digest = self.validating.then(|| md5_base64(&content));
        let mut headers = vec![("x-ms-write", "update"), ("x-ms-range", range.as_str())];
        headers.extend(digest.as_deref().map(|md5| ("content-md5", md5)));
        let query = [("comp", "range")];
        let attempt = || self.request(Method::PUT, (share, path), &query, &headers, content.clone());
        persistently(attempt).await.map(drop)
    }
}

/// Opens the source file; returns its length.
pub(super) fn open_source(source: &Path) -> Result<(Arc<File>, u64), ClientError> {
    let fail = |error: std::io::Error| ClientError::ReadFile { path: source.to_owned(), source: error };
    let file = File::open(source).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    match metadata.is_file() {
        true => Ok((Arc::new(file), metadata.len())),
        false => Err(fail(std::io::Error::other("it is not a file"))),
    }
}

pub(super) async fn read_range(file: Arc<File>, start: u64, length: u64, source: &Path) -> Result<Bytes, ClientError> {
    let read = move || -> std::io::Result<Bytes> {
        // Uninitialized capacity avoids zeroing every byte first.
        let mut content = Vec::with_capacity(length as usize);
        while (content.len() as u64) < length {
            let at = start + content.len() as u64;
            if pread(&file, spare_capacity(&mut content), at)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        // The capacity may be larger than requested, and the file may have grown.
        content.truncate(length as usize);
        Ok(Bytes::from(content))
    };
    let result = tokio::task::spawn_blocking(read).await.expect("reading a file does not panic");
    result.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => ClientError::SourceShrank { path: source.to_owned() },
        _ => ClientError::ReadFile { path: source.to_owned(), source: error },
    })
}

/// Content type by file name, as `az` guesses it with Python's `mimetypes`, for the kinds of files that training jobs
/// have.
pub fn guess_content_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "py" => "text/x-python",
        "txt" | "log" => "text/plain",
        "csv" => "text/csv",
        "html" => "text/html",
        "json" => "application/json",
        "sh" => "application/x-sh",
        "h5" | "hdf5" => "application/x-hdf5",
        "zip" => "application/zip",
        "tar" => "application/x-tar",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        _ => return None,
    })
}
