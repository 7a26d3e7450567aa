//! Reads request bodies: bounded in length, in time without progress and in the rate that must be kept up.

use std::time::{Duration, Instant};

use axum::body::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;

/// The service's limit for one range.
pub(crate) const MAX_RANGE: u64 = 4 << 20;

/// The longest pause between two pieces of a body.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A body that trickles must not keep its room: after a while it has come at so many bytes a second at least.
const MIN_RATE: u64 = 32 << 10;

const GRACE: Duration = Duration::from_secs(10);

/// Pieces that are kept as they came. A client that sends crumbs must not make us keep one
/// allocation for each; and the kernel takes no more than this in one write.
const MAX_PIECES: usize = 1024;

/// A small body, whole; at most `max` bytes.
pub(crate) async fn read_whole(call: &Call, body: Body, max: u64) -> Result<Vec<u8>, Refusal> {
    let len = call.number("content-length")?.unwrap_or(0);
    if len > max {
        drain(body).await;
        return Err(Refusal::new("RequestBodyTooLarge").saying(format!("The body has more than {max} bytes.")));
    }
    let pieces = collect(body, len, MAX_PAUSE).await?;
    Ok(pieces.concat())
}

pub(crate) fn sent_md5(call: &Call) -> Result<Option<[u8; 16]>, Refusal> {
    let Some(value) = call.headers.get("content-md5") else { return Ok(None) };
    let decoded = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    decoded.map(Some).ok_or(Refusal::header("content-md5"))
}

/// What is asked, with the body that belongs to it; one that nobody wants is read to its end first.
pub(crate) async fn with_body<T>(asked: Result<T, Refusal>, body: Body) -> Result<(T, Body), Refusal> {
    match asked {
        Ok(asked) => Ok((asked, body)),
        Err(refusal) => {
            drain(body).await;
            Err(refusal)
        }
    }
}

/// The body in the pieces it came in, without copying them; exactly `len` bytes, or a refusal.
pub(crate) async fn collect(body: Body, len: u64, max_pause: Duration) -> Result<Vec<Bytes>, Refusal> {
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

pub(crate) fn is_too_slow(received: u64, elapsed: Duration) -> bool {
    let counted = elapsed.saturating_sub(GRACE).as_secs_f64();
    (received as f64) < counted * MIN_RATE as f64
}

/// Reads a refused body to its end, within reason: a client that is still sending would otherwise
/// see its connection break instead of our answer.
pub(crate) async fn drain(body: Body) {
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
