//! Reads request bodies, bounded in length, in the pause between two chunks and in the minimum rate.

use std::time::{Duration, Instant};

use axum::body::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

/// Azure's limit for one range.
pub(crate) const MAX_RANGE_BYTES: u64 = 4 << 20;

/// Maximum pause between two chunks of a body.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum average rate after a grace period, so that a slow client cannot keep its upload permit.
const MIN_BYTES_PER_SECOND: u64 = 32 << 10;

const RATE_GRACE: Duration = Duration::from_secs(10);

/// Chunks kept as they arrived. A client that sends tiny chunks must not cost one allocation each, and the kernel takes
/// no more slices than this in one write.
const MAX_CHUNKS: usize = 1024;

/// Reads a small body of at most `max` bytes.
pub(crate) async fn read_whole(request: &StorageRequest, body: Body, max: u64) -> Result<Vec<u8>, StorageError> {
    let len = request.number("content-length")?.unwrap_or(0);
    if len > max {
        drain(body).await;
        return Err(
            StorageError::new("RequestBodyTooLarge").with_message(format!("The body has more than {max} bytes."))
        );
    }
    let chunks = collect(body, len, READ_TIMEOUT).await?;
    Ok(chunks.concat())
}

pub(crate) fn parse_content_md5(request: &StorageRequest) -> Result<Option<[u8; 16]>, StorageError> {
    let Some(value) = request.headers.get("content-md5") else { return Ok(None) };
    let decoded = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    decoded.map(Some).ok_or(StorageError::invalid_header("content-md5"))
}

/// Passes on the parsed headers and the body. If the headers are invalid, reads the body to its end first.
pub(crate) async fn or_drain<T>(parsed: Result<T, StorageError>, body: Body) -> Result<(T, Body), StorageError> {
    match parsed {
        Ok(parsed) => Ok((parsed, body)),
        Err(error) => {
            drain(body).await;
            Err(error)
        }
    }
}

/// Reads exactly `len` bytes in the chunks they arrive in, without copying.
pub(crate) async fn collect(body: Body, len: u64, read_timeout: Duration) -> Result<Vec<Bytes>, StorageError> {
    let mut stream = body.into_data_stream();
    let mut chunks: Vec<Bytes> = Vec::new();
    let mut merged: Option<BytesMut> = None;
    let mut received = 0u64;
    let start = Instant::now();
    loop {
        let chunk = match timeout(read_timeout, stream.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(StorageError::new("InvalidInput")),
            Err(_) => return Err(StorageError::new("OperationTimedOut")),
        };
        received += chunk.len() as u64;
        if is_too_slow(received, start.elapsed()) {
            return Err(StorageError::new("OperationTimedOut"));
        }
        if received > len {
            return Err(StorageError::new("InvalidInput"));
        }
        match &mut merged {
            Some(merged) => merged.extend_from_slice(&chunk),
            None => chunks.push(chunk),
        }
        if merged.is_none() && chunks.len() == MAX_CHUNKS {
            let mut whole = BytesMut::with_capacity(len as usize);
            chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
            merged = Some(whole);
        }
    }
    chunks.extend(merged.map(BytesMut::freeze));
    match received == len {
        true => Ok(chunks),
        false => Err(StorageError::new("InvalidInput")),
    }
}

pub(crate) fn is_too_slow(received: u64, elapsed: Duration) -> bool {
    let counted = elapsed.saturating_sub(RATE_GRACE).as_secs_f64();
    (received as f64) < counted * MIN_BYTES_PER_SECOND as f64
}

/// Reads a rejected body to its end, within limits. A client that is still sending would otherwise see a connection
/// reset instead of the response.
pub(crate) async fn drain(body: Body) {
    let mut left = 2 * MAX_RANGE_BYTES;
    let mut stream = body.into_data_stream();
    while let Ok(Some(Ok(chunk))) = timeout(READ_TIMEOUT, stream.next()).await {
        left = left.saturating_sub(chunk.len() as u64);
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
    fn a_body_below_the_minimum_rate_is_rejected_after_the_grace_period() {
        let check = |received: u64, seconds: u64, slow: bool| {
            assert_eq!(is_too_slow(received, Duration::from_secs(seconds)), slow, "{received} bytes in {seconds} s");
        };
        check(1, 10, false);
        check(10, 11, true);
        check(MIN_BYTES_PER_SECOND, 11, false);
        check(MAX_RANGE_BYTES, 130, false);
        check(MAX_RANGE_BYTES, 140, true);
    }

    #[tokio::test]
    async fn a_stalled_body_times_out() {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"XXXXX"))]);
        let stuck = Body::from_stream(first.chain(stream::pending()));
        let error = collect(stuck, 10, Duration::from_millis(1)).await.expect_err("half of it never comes");
        assert_eq!(error.code, "OperationTimedOut");
    }
}
