//! Writes many ranges of one file in one request (`comp=corro-ranges`), for the random writes of programs on a mount.
//! The body begins with a table of offset and length of each range (8 bytes each, big-endian), followed by their
//! content in the same order. Idempotent. With `x-corro-exclusive` the file is created first; the request fails if it
//! exists.

use std::io::IoSlice;

use axum::{body::Body, response::Response};
use bytes::{Buf, Bytes};

use crate::context::OperationContext;
use crate::files::file_ops::{CreateFile, MAX_FILE_BYTES};
use crate::files::write_op::WriteOp;
use crate::limits::request_body::{MAX_RANGE_BYTES, READ_TIMEOUT, collect, or_drain};
use crate::protocol::error::StorageError;
use crate::protocol::mount_headers;
use crate::protocol::request::StorageRequest;
use crate::shares::quota::check_quota;

/// Number of ranges.
const RANGE_COUNT_HEADER: &str = "x-corro-ranges";
const MAX_RANGES: u64 = 1024;
/// Offset and length of one range.
const TABLE_ENTRY_BYTES: u64 = 16;

pub(crate) async fn write(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let request = context.request;
    let parsed = parse_headers(request).and_then(|parsed| {
        let create = mount_headers::is_exclusive(request)?.then(|| CreateFile::parse(&context)).transpose()?;
        Ok((parsed, create, WriteOp::parse(request, (context.state.now)())?))
    });
    let (((count, len), create, write_op), body) = or_drain(parsed, body).await?;
    let _permit = context.acquire_upload_permit().await?;
    let chunks = collect(body, len, READ_TIMEOUT).await?;
    let ranges = parse_ranges(chunks, count)?;
    let end = ranges.iter().map(|range| range.offset + range.len).max().unwrap_or(0);
    let result = context
        .try_on_disk(move |shares, location| {
            if let Some(create) = create {
                create.execute(shares, location, 0)?;
            }
            write_op.execute(&location.open(shares)?, location, |share, location| {
                check_quota(share, &location.path, end)?;
                let mut slices: Vec<(u64, Vec<IoSlice>)> = (ranges.iter())
                    .map(|range| (range.offset, range.content.iter().map(|chunk| IoSlice::new(chunk)).collect()))
                    .collect();
                Ok(share.write_ranges(&location.path, &mut slices)?)
            })
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    Ok(result.to_response(request))
}

/// Number of ranges and length of the body.
fn parse_headers(request: &StorageRequest) -> Result<(u64, u64), StorageError> {
    let count = request.number(RANGE_COUNT_HEADER)?.ok_or(StorageError::missing_header(RANGE_COUNT_HEADER))?;
    if count == 0 || count > MAX_RANGES {
        return Err(StorageError::invalid_header(RANGE_COUNT_HEADER));
    }
    match request.number("content-length")?.ok_or(StorageError::new("MissingContentLengthHeader"))? {
        len if len > MAX_RANGE_BYTES + count * TABLE_ENTRY_BYTES => Err(StorageError::new("RequestBodyTooLarge")),
        len if len <= count * TABLE_ENTRY_BYTES => Err(StorageError::invalid_header("content-length")),
        len => Ok((count, len)),
    }
}

#[derive(Debug)]
struct Range {
    offset: u64,
    len: u64,
    content: Vec<Bytes>,
}

/// Parses a body that arrived in chunks, without copying the content.
fn parse_ranges(chunks: Vec<Bytes>, count: u64) -> Result<Vec<Range>, StorageError> {
    let invalid = |why: &str| {
        StorageError::new("InvalidInput").with_message(format!("The ranges in the body are invalid: {why}."))
    };
    let mut body = ChunkQueue(chunks.into());
    let mut table = Bytes::from(body.take(count * TABLE_ENTRY_BYTES).concat());
    let mut ranges = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (offset, len) = (table.get_u64(), table.get_u64());
        if offset.checked_add(len).is_none_or(|end| len == 0 || end > MAX_FILE_BYTES) {
            return Err(invalid("a range is empty or ends beyond the maximum file size"));
        }
        ranges.push(Range { offset, len, content: Vec::new() });
    }
    for range in &mut ranges {
        range.content = body.take(range.len);
        if range.content.iter().map(|chunk| chunk.len() as u64).sum::<u64>() < range.len {
            return Err(invalid("the body is too short"));
        }
    }
    if body.take(1).is_empty() { Ok(ranges) } else { Err(invalid("the body is too long")) }
}

struct ChunkQueue(std::collections::VecDeque<Bytes>);

impl ChunkQueue {
    /// Removes the next `len` bytes; fewer at the end.
    fn take(&mut self, mut len: u64) -> Vec<Bytes> {
        let mut front = Vec::with_capacity(1);
        while len > 0
            && let Some(mut chunk) = self.0.pop_front()
        {
            if chunk.len() as u64 > len {
                self.0.push_front(chunk.split_off(len as usize));
            }
            len -= chunk.len() as u64;
            front.push(chunk);
        }
        front
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(ranges: &[(u64, u64)], content: &[u8]) -> Vec<u8> {
        let table = ranges.iter().flat_map(|(offset, len)| [offset.to_be_bytes(), len.to_be_bytes()].concat());
        table.chain(content.iter().copied()).collect()
    }

    #[test]
    fn ranges_are_parsed_from_chunks_of_any_size() {
        let body = body(&[(7, 3), (100, 2), (0, 4)], b"abcdefghi");
        for size in 1..body.len() {
            let chunks = body.chunks(size).map(Bytes::copy_from_slice).collect();
            let ranges = parse_ranges(chunks, 3).expect("as it should be");
            let found: Vec<(u64, Vec<u8>)> =
                ranges.iter().map(|range| (range.offset, range.content.concat())).collect();
            assert_eq!(found, [(7, b"abc".to_vec()), (100, b"de".to_vec()), (0, b"fghi".to_vec())], "{size}");
        }
    }

    #[test]
    fn invalid_tables_and_lengths_are_rejected() {
        for (ranges, content) in [
            (&[(0, 3)][..], &b"ab"[..]),
            (&[(0, 3)], b"abcd"),
            (&[(0, 0), (5, 3)], b"abc"),
            (&[(u64::MAX, 3)], b"abc"),
            (&[(MAX_FILE_BYTES, 3)], b"abc"),
            (&[(0, u64::MAX)], b"abc"),
        ] {
            let body = Bytes::from(body(ranges, content));
            let error = parse_ranges(vec![body], ranges.len() as u64).expect_err("invalid");
            assert_eq!(error.code, "InvalidInput", "{ranges:?}");
        }
    }
}
