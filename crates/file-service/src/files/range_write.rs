//! Writes or clears one range of a file. The body, at most 4 MiB, is read completely before the first byte is written,
//! so an interrupted upload writes nothing.

use std::io::IoSlice;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use corro_shares::Share;
use md5::{Digest, Md5};
use tokio::task::spawn_blocking;

use crate::context::{Location, OperationContext};
use crate::files::write_op::WriteOp;
use crate::limits::request_body::{MAX_RANGE_BYTES, READ_TIMEOUT, collect, or_drain, parse_content_md5};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::{mount_headers, range, response};
use crate::shares::quota::check_quota;

enum RangeChange {
    Update { offset: u64, len: u64, md5: Option<[u8; 16]> },
    Clear { offset: u64, len: u64 },
}

pub(crate) async fn write(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let parsed = parse_change(context.request).and_then(|change| {
        let write_op = WriteOp::parse(context.request, (context.state.now)())?;
        Ok((change, write_op))
    });
    let ((change, write_op), body) = or_drain(parsed, body).await?;
    let mut md5_header = None;
    let result = match change {
        RangeChange::Clear { offset, len } => {
            let clear = move |share: &Share, location: &Location| Ok(share.clear_range(&location.path, offset, len)?);
            context
                .try_on_disk(move |shares, location| write_op.execute(&location.open(shares)?, location, clear))
                .await
        }
        RangeChange::Update { offset, len, md5 } => {
            let _permit = context.acquire_upload_permit().await?;
            let chunks = collect(body, len, READ_TIMEOUT).await?;
            let chunks = match md5 {
                None => chunks,
                Some(md5) => {
                    md5_header = Some(STANDARD.encode(md5));
                    check_md5(chunks, md5).await?
                }
            };
            let grows = mount_headers::grows_file(context.request)?;
            let update = move |share: &Share, location: &Location| {
                let mut slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
                if grows {
                    check_quota(share, &location.path, offset.saturating_add(len))?;
                    return Ok(share.write_growing(&location.path, offset, &mut slices)?);
                }
                Ok(share.write_range_vectored(&location.path, offset, &mut slices)?)
            };
            context
                .try_on_disk(move |shares, location| write_op.execute(&location.open(shares)?, location, update))
                .await
        }
    }
    .map_err(StorageError::type_mismatch_as_not_found)?;
    let mut response = result.to_response(context.request);
    if let Some(md5) = md5_header {
        // Only if the client sent one. Hashing all uploads would halve the throughput, and clients that send no MD5 do
        // not look at it.
        response::set_header(response.headers_mut(), "content-md5", &md5);
    }
    Ok(response)
}

/// Parses the headers. Pure.
fn parse_change(request: &StorageRequest) -> Result<RangeChange, StorageError> {
    let (offset, len) = range::parse_write_range(request)?;
    let body = request.number("content-length")?.ok_or(StorageError::new("MissingContentLengthHeader"));
    match request.header("x-ms-write").map(str::to_ascii_lowercase).as_deref() {
        Some("update") => {}
        Some("clear") if !matches!(body, Ok(1..)) => return Ok(RangeChange::Clear { offset, len }),
        Some("clear") => return Err(StorageError::invalid_header("content-length")),
        Some(_) => return Err(StorageError::invalid_header("x-ms-write")),
        None => return Err(StorageError::missing_header("x-ms-write")),
    }
    if len > MAX_RANGE_BYTES {
        return Err(StorageError::new("RequestBodyTooLarge"));
    }
    match body? {
        body if body > MAX_RANGE_BYTES => Err(StorageError::new("RequestBodyTooLarge")),
        body if body != len => Err(StorageError::invalid_header("content-length")),
        _ => Ok(RangeChange::Update { offset, len, md5: parse_content_md5(request)? }),
    }
}

async fn check_md5(chunks: Vec<Bytes>, expected: [u8; 16]) -> Result<Vec<Bytes>, StorageError> {
    let hashed = spawn_blocking(move || {
        let mut md5 = Md5::new();
        chunks.iter().for_each(|chunk| md5.update(chunk));
        (md5.finalize(), chunks)
    });
    let (found, chunks) = hashed.await.map_err(|_| StorageError::internal())?;
    match found[..] == expected {
        true => Ok(chunks),
        false => Err(StorageError::new("Md5Mismatch")),
    }
}
