//! What a mount on another machine needs and the service has no request for: the state of whatever lies at a path, short
//! listings, appending in one step, the time of the last change, waiting for the disk, the room that is left. Ours alone: `comp=corro-…` and
//! headers `x-corro-…`, signed and permitted as all others. `crates/mount` is who asks.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use axum::{body::Body, response::Response};
use corro_shares::{Kind, Link, PageRequest, Stat};
use http::{HeaderMap, HeaderValue, header};

use crate::context::Context;
use crate::protocol::error::Refusal;
use crate::protocol::listing::page_limit;
use crate::protocol::mount_headers::Links;
use crate::protocol::response;
use crate::shares::quota::quota_in_bytes;

pub(crate) async fn about(context: Context<'_>) -> Result<Response, Refusal> {
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

pub(crate) fn told(status: u16, stat: &Stat) -> Response {
    let mut response = response::empty(status);
    let headers = response.headers_mut();
    response::set_stat(headers, stat);
    set_number(headers, "x-corro-length", stat.len);
    set_number(headers, "x-corro-modified", nanos(stat.modified));
    headers.insert("x-corro-kind", HeaderValue::from_static(word(stat.kind, Links::AsFiles)));
    response
}

/// A page of a directory: for each entry kind, length, time in nanoseconds and name, with a zero byte after it.
pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
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

pub(crate) async fn set_modified(context: Context<'_>) -> Result<Response, Refusal> {
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
pub(crate) async fn sync(context: Context<'_>) -> Result<Response, Refusal> {
    let stat = context.on_disk(|shares, place| place.open(shares)?.sync(&place.path)).await?;
    Ok(told(200, &stat))
}

/// How much the share holds and may hold.
pub(crate) async fn room(context: Context<'_>) -> Result<Response, Refusal> {
    let (used, quota) = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            Ok((share.usage_lately()?, quota_in_bytes(&share)?))
        })
        .await?;
    let mut response = response::empty(200);
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

pub(crate) fn set_number(headers: &mut HeaderMap, name: &'static str, number: u64) {
    headers.insert(name, HeaderValue::from(number));
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
