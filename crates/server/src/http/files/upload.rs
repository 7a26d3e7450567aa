//! Bytes in: one range of a file. The body is collected whole (4 MiB at most) before the first
//! byte is written, so an upload that breaks off in the middle writes nothing of its range.

use std::{
    io::IoSlice,
    time::{Duration, Instant},
};

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use corro_shares::Share;
use futures_util::StreamExt;
use md5::{Digest, Md5};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    Context, Place, call::Call, mounted, range, refusal::Refusal, reply, rooms::Room, shares::reserve, writing::Writing,
};

/// The service's limit for one range.
pub(super) const MAX_RANGE: u64 = 4 << 20;
/// The longest pause between two pieces of a body.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a range waits until there is room for it.
const MAX_UPLOAD: Duration = Duration::from_secs(120);
/// A body that trickles must not keep its room: after a while it has come at so many bytes a second at least.
const MIN_RATE: u64 = 32 << 10;
const GRACE: Duration = Duration::from_secs(10);
/// Pieces that are kept as they came. A client that sends crumbs must not make us keep one
/// allocation for each; and the kernel takes no more than this in one write.
const MAX_PIECES: usize = 1024;

enum Change {
    Update { offset: u64, len: u64, md5: Option<[u8; 16]> },
    Clear { offset: u64, len: u64 },
}

pub(super) async fn write(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
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
            let _room = take_room(&context).await?;
            let pieces = collect(body, len, MAX_PAUSE).await?;
            let pieces = match md5 {
                None => pieces,
                Some(md5) => {
                    md5_header = Some(STANDARD.encode(md5));
                    check_md5(pieces, md5).await?
                }
            };
            let grows = mounted::grows(context.call)?;
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
        reply::set(response.headers_mut(), "content-md5", &md5);
    }
    Ok(response)
}

/// A small body, whole; at most `max` bytes.
pub(super) async fn read_whole(call: &Call, body: Body, max: u64) -> Result<Vec<u8>, Refusal> {
    let len = call.number("content-length")?.unwrap_or(0);
    if len > max {
        drain(body).await;
        return Err(Refusal::new("RequestBodyTooLarge").saying(format!("The body has more than {max} bytes.")));
    }
    let pieces = collect(body, len, MAX_PAUSE).await?;
    Ok(pieces.concat())
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

pub(super) fn sent_md5(call: &Call) -> Result<Option<[u8; 16]>, Refusal> {
    let Some(value) = call.headers.get("content-md5") else { return Ok(None) };
    let decoded = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    decoded.map(Some).ok_or(Refusal::header("content-md5"))
}

/// The body in the pieces it came in, without copying them; exactly `len` bytes, or a refusal.
pub(super) async fn collect(body: Body, len: u64, max_pause: Duration) -> Result<Vec<Bytes>, Refusal> {
    let mut stream = body.into_data_stream();
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut crumbs: Option<BytesMut> = None;
    let mut received = 0u64;
    let start = Instant::now();
    loop {
        let piece = match timeout(max_pause, stream.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Refusal::new("InvalidInput")),
            Err(_) => return Err(Refusal::new("OperationTimedOut")),
        };
        received += piece.len() as u64;
        if is_too_slow(received, start.elapsed()) {
            return Err(Refusal::new("OperationTimedOut"));
        }
        if received > len {
            return Err(Refusal::new("InvalidInput"));
        }
        match &mut crumbs {
            Some(crumbs) => crumbs.extend_from_slice(&piece),
            None => pieces.push(piece),
        }
        if crumbs.is_none() && pieces.len() == MAX_PIECES {
            let mut whole = BytesMut::with_capacity(len as usize);
            pieces.drain(..).for_each(|piece| whole.extend_from_slice(&piece));
            crumbs = Some(whole);
        }
    }
    pieces.extend(crumbs.map(BytesMut::freeze));
    match received == len {
        true => Ok(pieces),
        false => Err(Refusal::new("InvalidInput")),
    }
}

pub(super) fn is_too_slow(received: u64, elapsed: Duration) -> bool {
    let counted = elapsed.saturating_sub(GRACE).as_secs_f64();
    (received as f64) < counted * MIN_RATE as f64
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

/// What is asked, with the body that belongs to it; one that nobody wants is read to its end first.
pub(super) async fn with_body<T>(asked: Result<T, Refusal>, body: Body) -> Result<(T, Body), Refusal> {
    match asked {
        Ok(asked) => Ok((asked, body)),
        Err(refusal) => {
            drain(body).await;
            Err(refusal)
        }
    }
}

/// Room for the bytes of a request, as long as it is held.
pub(super) async fn take_room(context: &Context<'_>) -> Result<Room, Refusal> {
    let room = timeout(MAX_UPLOAD, context.service.uploads.take(&context.call.account)).await;
    room.map_err(|_| Refusal::new("ServerBusy"))
}

/// Reads a refused body to its end, within reason: a client that is still sending would otherwise
/// see its connection break instead of our answer.
pub(super) async fn drain(body: Body) {
    let mut left = 2 * MAX_RANGE;
    let mut stream = body.into_data_stream();
    while let Ok(Some(Ok(piece))) = timeout(MAX_PAUSE, stream.next()).await {
        left = left.saturating_sub(piece.len() as u64);
        if left == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[test]
    fn a_body_that_trickles_is_told_from_one_that_is_slow() {
        let check = |received: u64, seconds: u64, slow: bool| {
            assert_eq!(is_too_slow(received, Duration::from_secs(seconds)), slow, "{received} bytes in {seconds} s");
        };
        check(1, 10, false);
        check(10, 11, true);
        check(MIN_RATE, 11, false);
        check(MAX_RANGE, 130, false);
        check(MAX_RANGE, 140, true);
    }

    #[tokio::test]
    async fn a_body_that_stands_still_is_given_up() {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"XXXXX"))]);
        let stuck = Body::from_stream(first.chain(stream::pending()));
        let refusal = collect(stuck, 10, Duration::from_millis(1)).await.expect_err("half of it never comes");
        assert_eq!(refusal.code, "OperationTimedOut");
    }
}
