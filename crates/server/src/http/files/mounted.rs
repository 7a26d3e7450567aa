//! What a mount on another machine needs and the service has no request for: the state of whatever lies at a path, short
//! listings, appending in one step, the time of the last change, waiting for the disk, the room that is left. Ours alone: `comp=corro-…` and
//! headers `x-corro-…`, signed and permitted as all others. `crates/mount` is who asks.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    io::{IoSlice, Read, Seek, SeekFrom},
    sync::Mutex,
    time::{Duration, SystemTime},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use corro_shares::{Kind, Link, PageRequest, Share, SharePath, Stat};
use http::{HeaderMap, HeaderValue, header};

use super::{
    Context,
    call::Call,
    directories::page_limit,
    guard::Guard,
    refusal::Refusal,
    renames::flag,
    reply,
    shares::{quota_in_bytes, reserve},
    upload::{MAX_PAUSE, MAX_RANGE, collect, take_room, with_body},
};

/// On a `comp=range`: the file grows where it is too short.
pub(super) fn grows(call: &Call) -> Result<bool, Refusal> {
    flag(call, "x-corro-grow")
}

/// On the making of a file: one that is there is left alone.
pub(super) fn is_exclusive(call: &Call) -> Result<bool, Refusal> {
    flag(call, "x-corro-exclusive")
}

/// How a mount wants to see links, by its header `x-corro-links`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    /// As links (`true`): the kernel of the mounting machine resolves them.
    Shown,
    /// As what they lead to (`false`), for the directory that is mounted.
    Followed,
    /// Without the header: earlier mounts know only files and directories. A link that leads to no file of the share is a file with the
    /// link's text for them, so that they cannot descend into it either.
    AsFiles,
}

impl Links {
    fn of(call: &Call) -> Result<Links, Refusal> {
        const HEADER: &str = "x-corro-links";
        Ok(match (call.headers.contains_key(HEADER), flag(call, HEADER)?) {
            (true, true) => Links::Shown,
            (true, false) => Links::Followed,
            (false, _) => Links::AsFiles,
        })
    }
}

pub(super) async fn about(context: Context<'_>) -> Result<Response, Refusal> {
    let links = Links::of(context.call)?;
    let stat = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let entry = share.lstat(&place.path)?;
            match (entry.kind, links) {
                (Kind::Link, Links::Followed) => share.stat(&place.path),
                (Kind::Link, Links::AsFiles) => Ok(share.stat_file(&place.path).unwrap_or(entry)),
                _ => Ok(entry),
            }
        })
        .await?;
    Ok(described(200, &stat, links))
}

fn described(status: u16, stat: &Stat, links: Links) -> Response {
    let mut response = told(status, stat);
    response.headers_mut().insert("x-corro-kind", HeaderValue::from_static(word(stat.kind, links)));
    response
}

fn told(status: u16, stat: &Stat) -> Response {
    let mut response = reply::empty(status);
    let headers = response.headers_mut();
    reply::set_stat(headers, stat);
    set_number(headers, "x-corro-length", stat.len);
    set_number(headers, "x-corro-modified", nanos(stat.modified));
    headers.insert("x-corro-kind", HeaderValue::from_static(word(stat.kind, Links::AsFiles)));
    response
}

/// A page of a directory: for each entry kind, length, time in nanoseconds and name, with a zero byte after it.
pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let limit = page_limit(context.call)?;
    let links = Links::of(context.call)?;
    let from = context.call.parameter("marker").to_owned();
    let page = context
        .on_disk(move |shares, place| {
            let request = PageRequest { prefix: "", from: &from, limit: limit.effective, described: false };
            place.open(shares)?.list_page(&place.path, request)
        })
        .await?;
    let mut text = String::with_capacity(page.entries.len() * 64);
    for entry in &page.entries {
        let stat = match &entry.link {
            Some(Link { stat, .. }) if links == Links::Shown => stat,
            _ => &entry.stat,
        };
        let kind = word(stat.kind, links);
        let _ = write!(text, "{kind} {} {} {}\0", stat.len, nanos(stat.modified), entry.name);
    }
    if let Some(next) = page.next {
        // The last one has no kind: it is where the next page begins.
        let _ = write!(text, "{next}");
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

/// The last block that each writer appended, so that asking again after a broken connection appends nothing twice.
#[derive(Default)]
pub(super) struct Appended(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// By writer: the number of the block, and where it begins.
    last: HashMap<String, (u64, u64)>,
    order: VecDeque<String>,
}

const MAX_WRITERS: usize = 4096;
/// How far back a block is looked for that an earlier server may have appended.
const MAX_SEARCH: u64 = 64 << 20;

impl Appended {
    fn find(&self, writer: &str, number: u64) -> Option<u64> {
        let remembered = self.0.lock().expect("no one panics while holding it");
        remembered.last.get(writer).filter(|(last, _)| *last == number).map(|(_, start)| *start)
    }

    fn knows(&self, writer: &str) -> bool {
        self.0.lock().expect("no one panics while holding it").last.contains_key(writer)
    }

    fn note(&self, writer: String, number: u64, start: u64) {
        let mut remembered = self.0.lock().expect("no one panics while holding it");
        if remembered.last.insert(writer.clone(), (number, start)).is_none() {
            remembered.order.push_back(writer);
            if remembered.order.len() > MAX_WRITERS
                && let Some(oldest) = remembered.order.pop_front()
            {
                remembered.last.remove(&oldest);
            }
        }
    }
}

/// Appends the body as one block at the end as it is at that moment, and says where that was.
pub(super) async fn append(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = asked_append(call).and_then(|asked| Ok((asked, Guard::of(call, (context.service.now)())?)));
    let (((block, len), guard), body) = with_body(asked, body).await?;
    let _room = take_room(&context).await?;
    let pieces = collect(body, len, MAX_PAUSE).await?;
    let service = context.service_handle();
    let (start, stat) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            share.stat_file(&place.path)?;
            guard.check_write(&share, &place.path)?;
            let start = match block.again {
                Some(after) => match service.appended.find(&block.writer, block.number) {
                    Some(start) => Some(start),
                    // Its memory begins later than the first try: only the file can tell.
                    None if !service.appended.knows(&block.writer) => search(&share, &place.path, after, &pieces),
                    None => None,
                },
                None => None,
            };
            let start = match start {
                Some(start) => start,
                None => {
                    let end = share.stat_file(&place.path)?.len;
                    reserve(&share, &place.path, end.saturating_add(len))?;
                    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                    share.appender(&place.path)?.append_at_end(&slices)?
                }
            };
            service.appended.note(block.writer, block.number, start);
            Ok((start, share.stat(&place.path)?))
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let mut response = told(201, &stat);
    set_number(response.headers_mut(), "x-corro-offset", start);
    Ok(response)
}

struct Block {
    writer: String,
    number: u64,
    /// This was asked before; the block lies nowhere before this offset.
    again: Option<u64>,
}

fn asked_append(call: &Call) -> Result<(Block, u64), Refusal> {
    const WRITER: &str = "x-corro-writer";
    let writer = call.header(WRITER).ok_or(Refusal::missing_header(WRITER))?;
    if writer.is_empty() || writer.len() > 100 {
        return Err(Refusal::header(WRITER));
    }
    let number = call.number("x-corro-block")?.ok_or(Refusal::missing_header("x-corro-block"))?;
    let again = call.number("x-corro-again")?;
    match call.number("content-length")?.ok_or(Refusal::new("MissingContentLengthHeader"))? {
        0 => Err(Refusal::header("content-length")),
        len if len > MAX_RANGE => Err(Refusal::new("RequestBodyTooLarge")),
        len => Ok((Block { writer: writer.to_owned(), number, again }, len)),
    }
}

/// Where the block lies, at or after `after`.
fn search(share: &Share, path: &SharePath, after: u64, pieces: &[Bytes]) -> Option<u64> {
    let (mut file, stat) = share.open_file(path).ok()?;
    let block = pieces.concat();
    let from = after.max(stat.len.saturating_sub(MAX_SEARCH));
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut content = Vec::new();
    file.take(MAX_SEARCH).read_to_end(&mut content).ok()?;
    let found = content.windows(block.len()).position(|window| window == block)?;
    Some(from + found as u64)
}

pub(super) async fn set_modified(context: Context<'_>) -> Result<Response, Refusal> {
    const HEADER: &str = "x-corro-modified";
    let nanos = context.call.number(HEADER)?.ok_or(Refusal::missing_header(HEADER))?;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    let links = Links::of(context.call)?;
    let stat = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            match links {
                Links::Shown => share.set_entry_modified(&place.path, modified),
                Links::Followed | Links::AsFiles => share.set_modified(&place.path, modified),
            }
        })
        .await?;
    Ok(described(200, &stat, links))
}

/// Answers when what was written before is on the disk.
pub(super) async fn sync(context: Context<'_>) -> Result<Response, Refusal> {
    let stat = context.on_disk(|shares, place| place.open(shares)?.sync(&place.path)).await?;
    Ok(told(200, &stat))
}

/// How much the share holds and may hold.
pub(super) async fn room(context: Context<'_>) -> Result<Response, Refusal> {
    let (used, quota) = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            Ok((share.usage_lately()?, quota_in_bytes(&share)?))
        })
        .await?;
    let mut response = reply::empty(200);
    set_number(response.headers_mut(), "x-corro-used", used);
    if let Some(quota) = quota {
        set_number(response.headers_mut(), "x-corro-quota", quota);
    }
    Ok(response)
}

fn word(kind: Kind, links: Links) -> &'static str {
    match kind {
        Kind::Link if links == Links::Shown => "link",
        Kind::File | Kind::Link => "file",
        Kind::Directory => "directory",
    }
}

fn set_number(headers: &mut HeaderMap, name: &'static str, number: u64) {
    headers.insert(name, HeaderValue::from(number));
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
