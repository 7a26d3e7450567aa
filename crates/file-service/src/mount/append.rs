//! Atomic append of one block at the end of a file (`comp=corro-append`). Safe to retry: the block has a writer and a
//! number.

use std::io::{IoSlice, Read, Seek, SeekFrom};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use corro_shares::{Share, SharePath};

use crate::context::OperationContext;
use crate::limits::request_body::{MAX_RANGE_BYTES, READ_TIMEOUT, collect, or_drain};
use crate::mount::mount_ops::{entry_response, set_number};
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::shares::quota::check_quota;

/// How far back from the end a block is searched that was appended before a server restart.
const MAX_SEARCH_BYTES: u64 = 64 << 20;

/// Appends the body at the current end of the file and returns the offset.
pub(crate) async fn append(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let request = context.request;
    let parsed =
        parse_append(request).and_then(|parsed| Ok((parsed, Preconditions::parse(request, (context.state.now)())?)));
    let (((block, len), preconditions), body) = or_drain(parsed, body).await?;
    let _permit = context.acquire_upload_permit().await?;
    let chunks = collect(body, len, READ_TIMEOUT).await?;
    let state = context.state_handle();
    let (start, stat) = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            share.stat_file(&location.path)?;
            preconditions.check_write(&share, &location.path)?;
            let start = match block.retry_from {
                Some(after) => match state.recent_appends.find_offset(&block.writer, block.number) {
                    Some(start) => Some(start),
                    // The first attempt may have been before a restart, so the content of the file decides.
                    None if !state.recent_appends.has_writer(&block.writer) => {
                        find_block(&share, &location.path, after, &chunks)
                    }
                    None => None,
                },
                None => None,
            };
            let start = match start {
                Some(start) => start,
                None => {
                    let end = share.stat_file(&location.path)?.len;
                    check_quota(&share, &location.path, end.saturating_add(len))?;
                    let slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
                    share.appender(&location.path)?.append_at_end(&slices)?
                }
            };
            state.recent_appends.record(block.writer, block.number, start);
            Ok((start, share.stat(&location.path)?))
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    let mut response = entry_response(201, &stat);
    set_number(response.headers_mut(), "x-corro-offset", start);
    Ok(response)
}

struct AppendBlock {
    writer: String,
    number: u64,
    /// Set on a retry: the end of the file before the first attempt.
    retry_from: Option<u64>,
}

fn parse_append(request: &StorageRequest) -> Result<(AppendBlock, u64), StorageError> {
    const WRITER: &str = "x-corro-writer";
    let writer = request.header(WRITER).ok_or(StorageError::missing_header(WRITER))?;
    if writer.is_empty() || writer.len() > 100 {
        return Err(StorageError::invalid_header(WRITER));
    }
    let number = request.number("x-corro-block")?.ok_or(StorageError::missing_header("x-corro-block"))?;
    let retry_from = request.number("x-corro-again")?;
    match request.number("content-length")?.ok_or(StorageError::new("MissingContentLengthHeader"))? {
        0 => Err(StorageError::invalid_header("content-length")),
        len if len > MAX_RANGE_BYTES => Err(StorageError::new("RequestBodyTooLarge")),
        len => Ok((AppendBlock { writer: writer.to_owned(), number, retry_from }, len)),
    }
}

/// Offset of the block at or after `after`.
fn find_block(share: &Share, path: &SharePath, after: u64, chunks: &[Bytes]) -> Option<u64> {
    let (mut file, stat) = share.open_file(path).ok()?;
    let block = chunks.concat();
    let from = after.max(stat.len.saturating_sub(MAX_SEARCH_BYTES));
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut content = Vec::new();
    file.take(MAX_SEARCH_BYTES).read_to_end(&mut content).ok()?;
    let found = content.windows(block.len()).position(|window| window == block)?;
    Some(from + found as u64)
}
