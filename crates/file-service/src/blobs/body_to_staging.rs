//! Streams a request body of any length into a staging file. At most 1 MiB is in memory, counted by the upload permits.

use std::{io::IoSlice, time::Instant};

use axum::body::Body;
use bytes::Bytes;
use corro_shares::StagedFile;
use futures_util::StreamExt;
use md5::{Digest, Md5};
use tokio::{task::spawn_blocking, time::timeout};

use crate::context::OperationContext;
use crate::limits::request_body::{READ_TIMEOUT, is_too_slow};
use crate::protocol::error::StorageError;

/// Bytes collected before a write to disk.
const WRITE_BATCH_BYTES: usize = 1 << 20;
/// Many small chunks are written early, since each is an allocation of its own.
const MAX_CHUNKS: usize = 256;

pub struct StagedBody {
    pub staged: StagedFile,
    /// If it was requested.
    pub md5: Option<[u8; 16]>,
}

/// Reads exactly `len` bytes or fails. Fails early if the container does not exist.
pub async fn stage_body(
    context: &OperationContext<'_>,
    body: Body,
    len: u64,
    with_md5: bool,
) -> Result<StagedBody, StorageError> {
    let _permit = context.acquire_upload_permit().await?;
    let begun = context.on_disk(|shares, location| {
        shares.container(&location.account, &location.share)?;
        shares.stage_file(&location.account, &location.share)
    });
    let mut writer = StagingWriter { staged: begun.await?, md5: with_md5.then(Md5::new) };
    let mut stream = body.into_data_stream();
    let (mut received, start) = (0u64, Instant::now());
    let mut chunks: Vec<Bytes> = Vec::new();
    let mut batched = 0;
    loop {
        let chunk = match timeout(READ_TIMEOUT, stream.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(StorageError::new("InvalidInput")),
            Err(_) => return Err(StorageError::new("OperationTimedOut")),
        };
        received += chunk.len() as u64;
        if received > len {
            return Err(StorageError::new("InvalidInput"));
        }
        if is_too_slow(received, start.elapsed()) {
            return Err(StorageError::new("OperationTimedOut"));
        }
        batched += chunk.len();
        chunks.push(chunk);
        if batched >= WRITE_BATCH_BYTES || chunks.len() == MAX_CHUNKS {
            writer = writer.write(std::mem::take(&mut chunks)).await?;
            batched = 0;
        }
    }
    if received != len {
        return Err(StorageError::new("InvalidInput"));
    }
    let StagingWriter { staged, md5 } = writer.write(chunks).await?;
    Ok(StagedBody { staged, md5: md5.map(|md5| md5.finalize().into()) })
}

struct StagingWriter {
    staged: StagedFile,
    md5: Option<Md5>,
}

impl StagingWriter {
    async fn write(mut self, chunks: Vec<Bytes>) -> Result<Self, StorageError> {
        let done = spawn_blocking(move || {
            if let Some(md5) = &mut self.md5 {
                chunks.iter().for_each(|chunk| md5.update(chunk));
            }
            let mut slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
            self.staged.append(&mut slices)?;
            Ok::<_, corro_shares::ShareError>(self)
        });
        Ok(done.await.map_err(|_| StorageError::internal())??)
    }
}
