//! Requests of mounts about existing entries: stat, compact listing, modification time, fsync, space usage.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use axum::{body::Body, response::Response};
use corro_shares::{Kind, Link, PageRequest, Stat};
use http::{HeaderMap, HeaderValue, header};

use crate::context::OperationContext;
use crate::protocol::error::StorageError;
use crate::protocol::listing::page_limit;
use crate::protocol::mount_headers::LinkView;
use crate::protocol::response;
use crate::shares::quota::quota_bytes;

pub(crate) async fn stat_entry(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let links = LinkView::parse(context.request)?;
    let stat = context
        .on_disk(move |shares, location| {
            let share = location.open(shares)?;
            let entry = share.lstat(&location.path)?;
            match (entry.kind, links) {
                (Kind::Link, LinkView::Followed) => share.stat(&location.path),
                (Kind::Link, LinkView::AsFiles) => Ok(share.stat_file(&location.path).unwrap_or(entry)),
                _ => Ok(entry),
            }
        })
        .await?;
    Ok(entry_with_link_kind(200, &stat, links))
}

fn entry_with_link_kind(status: u16, stat: &Stat, links: LinkView) -> Response {
    let mut response = entry_response(status, stat);
    response.headers_mut().insert("x-corro-kind", HeaderValue::from_static(kind_name(stat.kind, links)));
    response
}

pub(crate) fn entry_response(status: u16, stat: &Stat) -> Response {
    let mut response = response::empty(status);
    let headers = response.headers_mut();
    response::set_etag_and_modified(headers, stat);
    set_number(headers, "x-corro-length", stat.len);
    set_number(headers, "x-corro-modified", unix_nanos(stat.modified));
    headers.insert("x-corro-kind", HeaderValue::from_static(kind_name(stat.kind, LinkView::AsFiles)));
    response
}

/// Lists a page of a directory. Each entry is kind, length, modification time in nanoseconds and name, ended by a NUL
/// byte.
pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let limit = page_limit(context.request)?;
    let links = LinkView::parse(context.request)?;
    let from = context.request.parameter("marker").to_owned();
    let page = context
        .on_disk(move |shares, location| {
            let request = PageRequest { prefix: "", from: &from, limit: limit.effective, described: false };
            location.open(shares)?.list_page(&location.path, request)
        })
        .await?;
    let mut text = String::with_capacity(page.entries.len() * 64);
    for entry in &page.entries {
        let stat = match &entry.link {
            Some(Link { stat, .. }) if links == LinkView::AsLinks => stat,
            _ => &entry.stat,
        };
        let kind = kind_name(stat.kind, links);
        let _ = write!(text, "{kind} {} {} {}\0", stat.len, unix_nanos(stat.modified), entry.name);
    }
    if let Some(next) = page.next {
        // The last record without a kind is the marker of the next page.
        let _ = write!(text, "{next}");
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

pub(crate) async fn set_modified(context: OperationContext<'_>) -> Result<Response, StorageError> {
    const HEADER: &str = "x-corro-modified";
    let unix_nanos = context.request.number(HEADER)?.ok_or(StorageError::missing_header(HEADER))?;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_nanos);
    let links = LinkView::parse(context.request)?;
    let stat = context
        .on_disk(move |shares, location| {
            let share = location.open(shares)?;
            match links {
                LinkView::AsLinks => share.set_entry_modified(&location.path, modified),
                LinkView::Followed | LinkView::AsFiles => share.set_modified(&location.path, modified),
            }
        })
        .await?;
    Ok(entry_with_link_kind(200, &stat, links))
}

/// Returns after all earlier writes are on disk (fsync).
pub(crate) async fn sync(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let stat = context.on_disk(|shares, location| location.open(shares)?.sync(&location.path)).await?;
    Ok(entry_response(200, &stat))
}

/// Used bytes and quota of the share.
pub(crate) async fn space_usage(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let (used, quota) = context
        .on_disk(|shares, location| {
            let share = location.open(shares)?;
            Ok((share.cached_usage()?, quota_bytes(&share)?))
        })
        .await?;
    let mut response = response::empty(200);
    set_number(response.headers_mut(), "x-corro-used", used);
    if let Some(quota) = quota {
        set_number(response.headers_mut(), "x-corro-quota", quota);
    }
    Ok(response)
}

fn kind_name(kind: Kind, links: LinkView) -> &'static str {
    match kind {
        Kind::Link if links == LinkView::AsLinks => "link",
        Kind::File | Kind::Link => "file",
        Kind::Directory => "directory",
    }
}

pub(crate) fn set_number(headers: &mut HeaderMap, name: &'static str, number: u64) {
    headers.insert(name, HeaderValue::from(number));
}

fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
