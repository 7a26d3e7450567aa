//! Bytes out: a whole file or a range of it, read in pieces by offset while the client takes
//! them. At most two pieces of a download are in memory, and no thread waits for a slow client.
//! Little that lies in the kernel's caches is answered at once; what may need the disk is read on
//! another thread.

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
use corro_shares::{Kind, Properties, ShareError, Shares, read_cached};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use md5::{Digest, Md5};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::auth::Access;
use crate::context::{Context, Place};
use crate::files::file_headers::{Described, parent_id};
use crate::files::header_cache::{self, Known};
use crate::limits::buffer_pool::{PIECE, read_piece};
use crate::limits::request_body::MAX_RANGE;
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::range::{self, Asked, Part};
use crate::protocol::request::Call;
use crate::protocol::response;

/// As much is read together with the rest that is asked of a file.
const LITTLE: u64 = 64 << 10;

/// A file that was written to within this time may be written to again.
const GROWING: Duration = Duration::from_secs(10);
/// So much of the end of a file tells whether it is a text.
const TAIL: u64 = 1024;

/// A link, and everything from some byte on: so `job file stream` asks for what is new.
pub(crate) fn follows(call: &Call, access: &Access) -> bool {
    matches!(access, Access::Link(_)) && matches!(range::of_read(call), Ok(Some(Asked::From(_))))
}

pub(crate) async fn read(context: Context<'_>, access: &Access) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = range::of_read(call)?;
    let Found { file, known, content } = match find_cached(&context, asked) {
        Some(found) => found,
        None => {
            let found = context.on_disk(move |shares, place| find(shares, place, asked)).await;
            let (file, described, content) = found.map_err(Refusal::kind_as_missing)?;
            Found { file, known: Arc::new(Known::of(&context, described)), content }
        }
    };
    let stat = &known.described.stat;
    Guard::of(call, (context.service.now)())?.check_read(stat, &known.described.properties)?;
    let mut part = part_of(asked, stat.len).ok_or(Refusal::range_beyond(stat.len))?;
    if follows(call, access) && decodes_parts(call) && is_growing(stat.modified, SystemTime::now()) {
        part.end -= half_character(&file, part).await?;
        if part.start == part.end {
            return Err(Refusal::range_beyond(stat.len));
        }
    }
    let wants_md5 = call.header("x-ms-range-get-content-md5").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if wants_md5 && (asked.is_none() || part.end - part.start > MAX_RANGE) {
        return Err(Refusal::header("x-ms-range-get-content-md5"));
    }

    let (body, md5) = match content {
        _ if wants_md5 => hashed(file, part).await?,
        Some(mut content) => {
            content.truncate((part.end - part.start) as usize);
            (Body::from(content), None)
        }
        None => (body(file, part), None),
    };
    let len = stat.len;
    let mut response = Response::new(body);
    *response.headers_mut() = known.into_headers();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    if asked.is_some() {
        // Of a part, the digest of the whole goes by another name.
        if let Some(whole) = headers.remove("content-md5") {
            headers.insert(if call.of_blobs { "x-ms-blob-content-md5" } else { "x-ms-content-md5" }, whole);
        }
        if let Some(md5) = md5 {
            response::set(headers, "content-md5", &md5);
        }
        let last = part.end - 1; // a part that was asked for is never empty
        response::set(headers, "content-range", &format!("bytes {}-{last}/{len}", part.start));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    if let Some(overrides) = access.overrides() {
        set_overrides(response.headers_mut(), overrides);
    }
    Ok(response)
}

/// A file that is there, with what is asked of it if that is little.
struct Found {
    file: File,
    known: Arc<Known>,
    content: Option<Bytes>,
}

/// Never waits, so it may be done on the thread that serves connections.
fn find_cached(context: &Context<'_>, asked: Option<Asked>) -> Option<Found> {
    if context.snapshot.is_some() || context.in_container {
        return None;
    }
    let (account, share) = (&context.call.account, &context.share);
    let shares = context.service.shares_of(account);
    let cached = shares.open_cached(account, share, &context.path)?;
    let known = header_cache::recall(context.call, shares.mark_of(&cached), || {
        let (stat, properties) = shares.describe_cached(&cached)?;
        let parent = match context.call.speaks_smb() {
            true => shares.parent_cached(account, share, &context.path)?,
            false => 0, // which is told to nobody
        };
        Some(Known::of(context, Described { stat, properties, parent }))
    })?;
    let content = match part_of(asked, known.described.stat.len).filter(Part::is_little) {
        Some(part) => Some(read_cached(&cached.file, part.start..part.end)?.into()),
        None => None,
    };
    Some(Found { file: cached.file, known, content })
}

fn find(shares: &Shares, place: &Place, asked: Option<Asked>) -> Result<(File, Described, Option<Bytes>), ShareError> {
    let share = place.open(shares)?;
    let (file, stat) = share.open_content(&place.path)?;
    let properties = match stat.kind {
        Kind::Link => Properties::default(),
        Kind::File | Kind::Directory => share.properties_of(&file),
    };
    let part = part_of(asked, stat.len).filter(Part::is_little);
    // What cannot be read fails as the body of the answer.
    let content = part.and_then(|part| read_piece(&file, part.start, (part.end - part.start) as usize).ok());
    let parent = parent_id(&share, &place.path);
    Ok((file, Described { stat, properties, parent }, content))
}

/// None when the file has nothing of what is asked for.
fn part_of(asked: Option<Asked>, len: u64) -> Option<Part> {
    match asked {
        None => Some(Part { start: 0, end: len }),
        Some(asked) => asked.within(len),
    }
}

impl Part {
    fn is_little(&self) -> bool {
        self.end - self.start <= LITTLE
    }
}

/// A part of a file as a body. A file that has become shorter meanwhile ends it with an error,
/// which closes the connection: the length was promised.
fn body(file: File, part: Part) -> Body {
    let file = Arc::new(file);
    let first = Ahead::start(&file, part);
    Body::from_stream(stream::unfold(first, move |ahead| {
        let file = file.clone();
        async move {
            let Ahead { piece, rest } = ahead?;
            let piece = match piece.await {
                Ok(piece) => piece,
                Err(_) => Err(io::Error::other("reading the file panicked")),
            };
            // The next piece is read while this one is being sent.
            let next = piece.is_ok().then(|| Ahead::start(&file, rest)).flatten();
            Some((piece, next))
        }
    }))
}

/// A piece that is being read, and what follows it.
struct Ahead {
    piece: JoinHandle<io::Result<Bytes>>,
    rest: Part,
}

impl Ahead {
    /// None when nothing is left.
    fn start(file: &Arc<File>, part: Part) -> Option<Self> {
        if part.start >= part.end {
            return None;
        }
        let len = (PIECE as u64).min(part.end - part.start);
        let file = file.clone();
        let piece = spawn_blocking(move || read_piece(&file, part.start, len as usize));
        Some(Ahead { piece, rest: Part { start: part.start + len, end: part.end } })
    }
}

/// The retired service's command line follows a log with this library and makes text of each part by itself: half a
/// character is its end.
fn decodes_parts(call: &Call) -> bool {
    call.header("user-agent").is_some_and(|agent| agent.starts_with("python-requests/"))
}

fn is_growing(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).is_ok_and(|quiet| quiet < GROWING)
}

/// How many bytes at the end of a part of a growing text are the beginning of a character.
async fn half_character(file: &File, part: Part) -> Result<u64, Refusal> {
    let file = file.try_clone().map_err(|_| Refusal::internal())?;
    let tail = Part { start: part.start.max(part.end.saturating_sub(TAIL)), end: part.end };
    let read = spawn_blocking(move || read_piece(&file, tail.start, (tail.end - tail.start) as usize));
    match read.await {
        Ok(Ok(bytes)) => Ok(unfinished(&bytes, tail.start > part.start) as u64),
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(Refusal::internal()),
    }
}

/// The length of the unfinished character at the end of a text; 0 for what is no text. `is_cut` says that it may begin
/// inside a character too.
fn unfinished(bytes: &[u8], is_cut: bool) -> usize {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let skipped = bytes.iter().take(3).take_while(|byte| is_cut && is_inside(byte)).count();
    let text = &bytes[skipped..];
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() && !text.contains(&0) => text.len() - error.valid_up_to(),
        _ => 0,
    }
}

/// A small part, read whole, with its `Content-MD5`.
async fn hashed(file: File, part: Part) -> Result<(Body, Option<String>), Refusal> {
    let read = spawn_blocking(move || {
        let bytes = read_piece(&file, part.start, (part.end - part.start) as usize)?;
        Ok::<_, io::Error>((STANDARD.encode(Md5::digest(&bytes)), bytes))
    });
    match read.await {
        Ok(Ok((md5, bytes))) => Ok((Body::from(bytes), Some(md5))),
        // Shrunk since it was opened: for this caller the range is gone.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Refusal::new("InvalidRange")),
        _ => Err(Refusal::internal()),
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
            response::set(headers, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_not_finished_is_left_for_the_next_read() {
        let check = |bytes: &[u8], is_cut: bool, expected: usize| {
            assert_eq!(unfinished(bytes, is_cut), expected, "{bytes:?} {is_cut}");
        };
        let euro = "€".as_bytes();
        check(b"", false, 0);
        check(b"plain", false, 0);
        check("10 €".as_bytes(), false, 0);
        check(&[b"10 ", &euro[..2]].concat(), false, 2);
        check(&[b"10 ", &euro[..1]].concat(), false, 1);
        check(&euro[..2], false, 2);
        check(&"🎉".as_bytes()[..3], false, 3);
        // Cut out of the middle, as the end of a long text is.
        check(&[&euro[1..], b" and ", &euro[..1]].concat(), true, 1);
        check(&[&euro[1..], b" and "].concat(), true, 0);
        // No text: a model, say, must come whole.
        check(&[0, 1, 2, 0xe2], false, 0);
        check(&[0xff, b'a', 0xe2], false, 0);
        check(&[&euro[1..], b" and ", &euro[..1]].concat(), false, 0);
    }
}
