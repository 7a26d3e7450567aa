//! Bytes in: one range of a file. The body is collected whole (4 MiB at most) before the first
//! byte is written, so an upload that breaks off in the middle writes nothing of its range.

use std::io::IoSlice;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use corro_shares::Share;
use md5::{Digest, Md5};
use tokio::task::spawn_blocking;

use crate::context::{Context, Place};
use crate::files::write_op::Writing;
use crate::limits::request_body::{MAX_PAUSE, MAX_RANGE, collect, sent_md5, with_body};
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::{mount_headers, range, response};
use crate::shares::quota::reserve;

enum Change {
    Update { offset: u64, len: u64, md5: Option<[u8; 16]> },
    Clear { offset: u64, len: u64 },
}

pub(crate) async fn write(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let asked = change_of(context.call).and_then(|change| {
        let writing = Writing::of(context.call, (context.service.now)())?;
        Ok((change, writing))
    });
    let ((change, writing), body) = with_body(asked, body).await?;
    let mut md5_header = None;
    let written = match change {
        Change::Clear { offset, len } => {
            let clear = move |share: &Share, place: &Place| Ok(share.clear_range(&place.path, offset, len)?);
            context.decide_on_disk(move |shares, place| writing.perform(&place.open(shares)?, place, clear)).await
        }
        Change::Update { offset, len, md5 } => {
            let _room = context.take_room().await?;
            let pieces = collect(body, len, MAX_PAUSE).await?;
            let pieces = match md5 {
                None => pieces,
                Some(md5) => {
                    md5_header = Some(STANDARD.encode(md5));
                    check_md5(pieces, md5).await?
                }
            };
            let grows = mount_headers::grows(context.call)?;
            let update = move |share: &Share, place: &Place| {
                let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                if grows {
                    reserve(share, &place.path, offset.saturating_add(len))?;
                    return Ok(share.write_growing(&place.path, offset, &mut slices)?);
                }
                Ok(share.write_range_vectored(&place.path, offset, &mut slices)?)
            };
            context.decide_on_disk(move |shares, place| writing.perform(&place.open(shares)?, place, update)).await
        }
    }
    .map_err(Refusal::kind_as_missing)?;
    let mut response = written.answer(context.call);
    if let Some(md5) = md5_header {
        // Only when the client sent one: hashing every byte of every upload would cost half the
        // throughput, for a value that clients which sent none do not look at.
        response::set(response.headers_mut(), "content-md5", &md5);
    }
    Ok(response)
}

/// What the headers ask for. Pure.
fn change_of(call: &Call) -> Result<Change, Refusal> {
    let (offset, len) = range::of_write(call)?;
    let body = call.number("content-length")?.ok_or(Refusal::new("MissingContentLengthHeader"));
    match call.header("x-ms-write").map(str::to_ascii_lowercase).as_deref() {
        Some("update") => {}
        Some("clear") if !matches!(body, Ok(1..)) => return Ok(Change::Clear { offset, len }),
        Some("clear") => return Err(Refusal::header("content-length")),
        Some(_) => return Err(Refusal::header("x-ms-write")),
        None => return Err(Refusal::missing_header("x-ms-write")),
    }
    if len > MAX_RANGE {
        return Err(Refusal::new("RequestBodyTooLarge"));
    }
    match body? {
        body if body > MAX_RANGE => Err(Refusal::new("RequestBodyTooLarge")),
        body if body != len => Err(Refusal::header("content-length")),
        _ => Ok(Change::Update { offset, len, md5: sent_md5(call)? }),
    }
}

async fn check_md5(pieces: Vec<Bytes>, expected: [u8; 16]) -> Result<Vec<Bytes>, Refusal> {
    let hashed = spawn_blocking(move || {
        let mut md5 = Md5::new();
        pieces.iter().for_each(|piece| md5.update(piece));
        (md5.finalize(), pieces)
    });
    let (found, pieces) = hashed.await.map_err(|_| Refusal::internal())?;
    match found[..] == expected {
        true => Ok(pieces),
        false => Err(Refusal::new("Md5Mismatch")),
    }
}
