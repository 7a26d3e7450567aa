//! Reads a whole file or a range of it. Content is read in chunks while the client receives it: at most two chunks of a
//! download are in memory, and no thread waits for a slow client. Small reads from the page cache are answered on the
//! connection's thread; reads that may need the disk run on a blocking thread.

use std::{
    fs::File,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use corro_model::storage::sas::Overrides;
use corro_shares::{Kind, Properties, ShareError, Shares, read_nonblocking};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use md5::{Digest, Md5};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::auth::Grant;
use crate::context::{Location, OperationContext};
use crate::files::file_headers::{FileDescription, parent_id};
use crate::files::header_cache::{self, DescribedFile};
use crate::limits::buffer_pool::{CHUNK_BYTES, read_chunk};
use crate::limits::request_body::MAX_RANGE_BYTES;
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::range::{self, ByteRange, RangeSpec};
use crate::protocol::request::StorageRequest;
use crate::protocol::response;

/// Content up to this size is read together with the file's attributes.
const INLINE_BYTES: u64 = 64 << 10;

/// A file modified within this time is assumed to be still growing.
const RECENT_WRITE: Duration = Duration::from_secs(10);
/// Bytes at the end of a file that are checked for being text.
const TEXT_TAIL_BYTES: u64 = 1024;

/// A read with a SAS from some offset to the end of the file: `job file stream` polls a log this way.
pub(crate) fn is_tail_read(request: &StorageRequest, grant: &Grant) -> bool {
    matches!(grant, Grant::Sas(_)) && matches!(range::parse_read_range(request), Ok(Some(RangeSpec::From(_))))
}

pub(crate) async fn read(context: OperationContext<'_>, grant: &Grant) -> Result<Response, StorageError> {
    let request = context.request;
    let spec = range::parse_read_range(request)?;
    let OpenedFile { file, described, content } = match open_nonblocking(&context, spec) {
        Some(found) => found,
        None => {
            let found = context.on_disk(move |shares, location| open_blocking(shares, location, spec)).await;
            let (file, described, content) = found.map_err(StorageError::type_mismatch_as_not_found)?;
            OpenedFile { file, described: Arc::new(DescribedFile::new(&context, described)), content }
        }
    };
    let stat = &described.described.stat;
    Preconditions::parse(request, (context.state.now)())?.check_read(stat, &described.described.properties)?;
    let mut range = resolve_range(spec, stat.len).ok_or(StorageError::range_not_satisfiable(stat.len))?;
    if is_tail_read(request, grant) && decodes_each_response(request) && is_growing(stat.modified, SystemTime::now()) {
        range.end -= partial_character_len(&file, range).await?;
        if range.start == range.end {
            return Err(StorageError::range_not_satisfiable(stat.len));
        }
    }
    let wants_md5 = request.header("x-ms-range-get-content-md5").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if wants_md5 && (spec.is_none() || range.end - range.start > MAX_RANGE_BYTES) {
        return Err(StorageError::invalid_header("x-ms-range-get-content-md5"));
    }

    let (body, md5) = match content {
        _ if wants_md5 => read_with_md5(file, range).await?,
        Some(mut content) => {
            content.truncate((range.end - range.start) as usize);
            (Body::from(content), None)
        }
        None => (stream_body(file, range), None),
    };
    let len = stat.len;
    let mut response = Response::new(body);
    *response.headers_mut() = described.into_headers();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    if spec.is_some() {
        // On a range, Azure sends the MD5 of the whole file under another name.
        if let Some(whole) = headers.remove("content-md5") {
            headers.insert(if request.is_blob_service { "x-ms-blob-content-md5" } else { "x-ms-content-md5" }, whole);
        }
        if let Some(md5) = md5 {
            response::set_header(headers, "content-md5", &md5);
        }
        let last = range.end - 1; // a clipped range is never empty
        response::set_header(headers, "content-range", &format!("bytes {}-{last}/{len}", range.start));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    if let Some(overrides) = grant.header_overrides() {
        set_overrides(response.headers_mut(), overrides);
    }
    Ok(response)
}

/// An open file with its response headers, and its content if that is small.
struct OpenedFile {
    file: File,
    described: Arc<DescribedFile>,
    content: Option<Bytes>,
}

/// Opens and describes a file without blocking on the disk; `None` if that is not possible. Runs on the connection's
/// thread.
fn open_nonblocking(context: &OperationContext<'_>, spec: Option<RangeSpec>) -> Option<OpenedFile> {
    if context.snapshot.is_some() || context.in_container {
        return None;
    }
    let (account, share) = (&context.request.account, &context.share);
    let shares = context.state.shares_of(account);
    let cached = shares.open_nonblocking(account, share, &context.path)?;
    let described = header_cache::get_or_load(context.request, shares.version_of(&cached), || {
        let (stat, properties) = shares.describe_nonblocking(&cached)?;
        let parent = match context.request.supports_smb_headers() {
            true => shares.parent_id_nonblocking(account, share, &context.path)?,
            false => 0, // no header carries it
        };
        Some(DescribedFile::new(context, FileDescription { stat, properties, parent }))
    })?;
    let content = match resolve_range(spec, described.described.stat.len).filter(ByteRange::is_small) {
        Some(range) => Some(read_nonblocking(&cached.file, range.start..range.end)?.into()),
        None => None,
    };
    Some(OpenedFile { file: cached.file, described, content })
}

fn open_blocking(
    shares: &Shares,
    location: &Location,
    spec: Option<RangeSpec>,
) -> Result<(File, FileDescription, Option<Bytes>), ShareError> {
    let share = location.open(shares)?;
    let (file, stat) = share.open_content(&location.path)?;
    let properties = match stat.kind {
        Kind::Link => Properties::default(),
        Kind::File | Kind::Directory => share.read_properties(&file),
    };
    let range = resolve_range(spec, stat.len).filter(ByteRange::is_small);
    // A read error is reported by the body stream.
    let content = range.and_then(|range| read_chunk(&file, range.start, (range.end - range.start) as usize).ok());
    let parent = parent_id(&share, &location.path);
    Ok((file, FileDescription { stat, properties, parent }, content))
}

/// `None` when the range lies beyond the end of the file.
fn resolve_range(spec: Option<RangeSpec>, len: u64) -> Option<ByteRange> {
    match spec {
        None => Some(ByteRange { start: 0, end: len }),
        Some(spec) => spec.clip(len),
    }
}

impl ByteRange {
    fn is_small(&self) -> bool {
        self.end - self.start <= INLINE_BYTES
    }
}

/// Streams a range of a file. If the file is truncated meanwhile, the stream ends with an error and the connection is
/// closed, because `Content-Length` was already sent.
fn stream_body(file: File, range: ByteRange) -> Body {
    let file = Arc::new(file);
    let first = ReadAhead::start(&file, range);
    Body::from_stream(stream::unfold(first, move |read_ahead| {
        let file = file.clone();
        async move {
            let ReadAhead { chunk, rest } = read_ahead?;
            let chunk = match chunk.await {
                Ok(chunk) => chunk,
                Err(_) => Err(io::Error::other("reading the file panicked")),
            };
            // The next chunk is read while this one is sent.
            let next = chunk.is_ok().then(|| ReadAhead::start(&file, rest)).flatten();
            Some((chunk, next))
        }
    }))
}

/// A chunk being read, and the range after it.
struct ReadAhead {
    chunk: JoinHandle<io::Result<Bytes>>,
    rest: ByteRange,
}

impl ReadAhead {
    /// `None` at the end of the range.
    fn start(file: &Arc<File>, range: ByteRange) -> Option<Self> {
        if range.start >= range.end {
            return None;
        }
        let len = (CHUNK_BYTES as u64).min(range.end - range.start);
        let file = file.clone();
        let chunk = spawn_blocking(move || read_chunk(&file, range.start, len as usize));
        Some(ReadAhead { chunk, rest: ByteRange { start: range.start + len, end: range.end } })
    }
}

/// The Batch AI command line follows a log with python-requests and decodes each response on its own, so a response
/// must not end inside a UTF-8 character.
fn decodes_each_response(request: &StorageRequest) -> bool {
    request.header("user-agent").is_some_and(|agent| agent.starts_with("python-requests/"))
}

fn is_growing(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).is_ok_and(|quiet| quiet < RECENT_WRITE)
}

/// Bytes at the end of a range of a growing text file that are an incomplete UTF-8 character.
async fn partial_character_len(file: &File, range: ByteRange) -> Result<u64, StorageError> {
    let file = file.try_clone().map_err(|_| StorageError::internal())?;
    let tail = ByteRange { start: range.start.max(range.end.saturating_sub(TEXT_TAIL_BYTES)), end: range.end };
    let read = spawn_blocking(move || read_chunk(&file, tail.start, (tail.end - tail.start) as usize));
    match read.await {
        Ok(Ok(bytes)) => Ok(partial_utf8_len(&bytes, tail.start > range.start) as u64),
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(StorageError::internal()),
    }
}

/// Length of the incomplete UTF-8 character at the end; 0 if the bytes are not text. `is_cut`: the bytes may also begin
/// inside a character.
fn partial_utf8_len(bytes: &[u8], is_cut: bool) -> usize {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let skipped = bytes.iter().take(3).take_while(|byte| is_cut && is_inside(byte)).count();
    let text = &bytes[skipped..];
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() && !text.contains(&0) => text.len() - error.valid_up_to(),
        _ => 0,
    }
}

/// Reads a small range, with its `Content-MD5`.
async fn read_with_md5(file: File, range: ByteRange) -> Result<(Body, Option<String>), StorageError> {
    let read = spawn_blocking(move || {
        let bytes = read_chunk(&file, range.start, (range.end - range.start) as usize)?;
        Ok::<_, io::Error>((STANDARD.encode(Md5::digest(&bytes)), bytes))
    });
    match read.await {
        Ok(Ok((md5, bytes))) => Ok((Body::from(bytes), Some(md5))),
        // Truncated since it was opened.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(StorageError::new("InvalidRange")),
        _ => Err(StorageError::internal()),
    }
}

fn set_overrides(headers: &mut HeaderMap, overrides: &Overrides) {
    for (name, value) in [
        ("cache-control", &overrides.cache_control),
        ("content-disposition", &overrides.content_disposition),
        ("content-encoding", &overrides.content_encoding),
        ("content-language", &overrides.content_language),
        ("content-type", &overrides.content_type),
    ] {
        if !value.is_empty() {
            response::set_header(headers, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_utf8_character_is_left_for_the_next_read() {
        let check = |bytes: &[u8], is_cut: bool, expected: usize| {
            assert_eq!(partial_utf8_len(bytes, is_cut), expected, "{bytes:?} {is_cut}");
        };
        let euro = "€".as_bytes();
        check(b"", false, 0);
        check(b"plain", false, 0);
        check("10 €".as_bytes(), false, 0);
        check(&[b"10 ", &euro[..2]].concat(), false, 2);
        check(&[b"10 ", &euro[..1]].concat(), false, 1);
        check(&euro[..2], false, 2);
        check(&"🎉".as_bytes()[..3], false, 3);
        // Cut out of the middle of a long text.
        check(&[&euro[1..], b" and ", &euro[..1]].concat(), true, 1);
        check(&[&euro[1..], b" and "].concat(), true, 0);
        // Not text, for example a model file: sent whole.
        check(&[0, 1, 2, 0xe2], false, 0);
        check(&[0xff, b'a', 0xe2], false, 0);
        check(&[&euro[1..], b" and ", &euro[..1]].concat(), false, 0);
    }
}
