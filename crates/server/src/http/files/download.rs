//! Bytes out: a whole file or a range of it, read in pieces by offset while the client takes
//! them. At most two pieces of a download are in memory, and no thread waits for a slow client.
//! Little that lies in the kernel's caches is answered at once; what may need the disk is read on
//! another thread.

use std::{fs::File, io, sync::Arc};

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use corro_model::storage::sas::Overrides;
use corro_shares::{Cached, ShareError, Shares, read_cached};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use md5::{Digest, Md5};
use rustix::{buffer::spare_capacity, io::Errno, io::pread};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    Context, Place,
    content::{Described, set_file},
    directories::parent_id,
    guard::Guard,
    range::{self, Asked, Part},
    refusal::Refusal,
    reply,
    upload::MAX_RANGE,
};

/// Large enough that the hop to a blocking thread is lost in the copying, small enough to stay in
/// the processor's cache on the way to the socket.
const PIECE: u64 = 512 << 10;
/// As much is read together with the rest that is asked of a file.
const LITTLE: u64 = 64 << 10;

pub(super) async fn read(context: Context<'_>, overrides: Option<&Overrides>) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = range::of_read(call)?;
    let mut whole_md5 = None;
    let found = match find_cached(&context, asked) {
        Some(found) => found,
        None => {
            context.on_disk(move |shares, place| find(shares, place, asked)).await.map_err(Refusal::kind_as_missing)?
        }
    };
    let Found { file, mut described, content } = found;
    let now = (context.service.now)();
    Guard::of(call, now)?.check_read(&described.stat, &described.properties)?;
    context.service.copies.settle(&mut described.properties);
    if asked.is_some()
        && let Some(whole) = described.properties.get("content-md5").map(str::to_owned)
    {
        // Of a part, the digest of the whole goes by another name.
        described.properties.remove("content-md5");
        whole_md5 = Some(whole);
    }
    let stat = &described.stat;
    let part = part_of(asked, stat.len).ok_or(Refusal::range_beyond(stat.len))?;
    let wants_md5 = call.header("x-ms-range-get-content-md5").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if wants_md5 && (asked.is_none() || part.end - part.start > MAX_RANGE) {
        return Err(Refusal::header("x-ms-range-get-content-md5"));
    }

    let mut response = match content {
        _ if wants_md5 => hashed(file, part).await?,
        Some(content) => Response::new(Body::from(content)),
        None => Response::new(body(file, part)),
    };
    let headers = response.headers_mut();
    set_file(headers, call, &described, now);
    if let Some(md5) = whole_md5 {
        reply::set(headers, "x-ms-content-md5", &md5);
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    if let Some(overrides) = overrides {
        set_overrides(headers, overrides);
    }
    if asked.is_some() {
        let last = part.end - 1; // a part that was asked for is never empty
        reply::set(headers, "content-range", &format!("bytes {}-{last}/{}", part.start, stat.len));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// A file that is there, with what is asked of it if that is little.
struct Found {
    file: File,
    described: Described,
    content: Option<Bytes>,
}

/// Never waits, so it may be done on the thread that serves connections.
fn find_cached(context: &Context<'_>, asked: Option<Asked>) -> Option<Found> {
    if context.snapshot.is_some() || context.in_container {
        return None;
    }
    let (account, share) = (&context.call.account, &context.share);
    let Cached { file, stat, properties, parent } =
        context.service.shares.open_cached(account, share, &context.path)?;
    let content = match part_of(asked, stat.len).filter(Part::is_little) {
        Some(part) => Some(read_cached(&file, part.start..part.end)?.into()),
        None => None,
    };
    Some(Found { file, described: Described { stat, properties, parent }, content })
}

fn find(shares: &Shares, place: &Place, asked: Option<Asked>) -> Result<Found, ShareError> {
    let share = place.open(shares)?;
    let (file, stat) = share.open_file(&place.path)?;
    let properties = share.properties_of(&file);
    let part = part_of(asked, stat.len).filter(Part::is_little);
    // What cannot be read fails as the body of the answer.
    let content = part.and_then(|part| read_piece(&file, part.start, (part.end - part.start) as usize).ok());
    let parent = parent_id(&share, &place.path);
    Ok(Found { file, described: Described { stat, properties, parent }, content })
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
        let len = PIECE.min(part.end - part.start);
        let file = file.clone();
        let piece = spawn_blocking(move || read_piece(&file, part.start, len as usize));
        Some(Ahead { piece, rest: Part { start: part.start + len, end: part.end } })
    }
}

pub(super) fn read_piece(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(len);
    while piece.len() < len {
        let at = offset + piece.len() as u64;
        match pread(file, spare_capacity(&mut piece), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    piece.truncate(len); // the allocator may have given more room than was asked for
    Ok(Bytes::from(piece))
}

/// A small part, read whole, with its `Content-MD5`.
async fn hashed(file: File, part: Part) -> Result<Response, Refusal> {
    let read = spawn_blocking(move || {
        let bytes = read_piece(&file, part.start, (part.end - part.start) as usize)?;
        Ok::<_, io::Error>((STANDARD.encode(Md5::digest(&bytes)), bytes))
    });
    match read.await {
        Ok(Ok((md5, bytes))) => {
            let mut response = Response::new(Body::from(bytes));
            reply::set(response.headers_mut(), "content-md5", &md5);
            Ok(response)
        }
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
            reply::set(headers, name, value);
        }
    }
}
