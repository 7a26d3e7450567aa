//! Writes of programs: buffered as dirty ranges, appended at the server's end, or a new length.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::{OpenFile, SeenErrors};
use crate::remote::{AppendBlock, Remote};
use crate::writeback::{MAX_RANGE_BYTES, batches};

/// Limit of unsent data of a file; above it ranges are sent even if they are not full.
const MAX_BUFFERED_BYTES: usize = 4 * MAX_RANGE_BYTES;
const MAX_BUFFERED_RANGES: usize = 512;
/// The service's largest file size.
const MAX_FILE_BYTES: u64 = 1 << 42;

impl<R: Remote> OpenFile<R> {
    pub async fn write(self: &Arc<Self>, offset: u64, content: &[u8], seen_errors: &SeenErrors) -> Result<(), i32> {
        let end = offset.checked_add(content.len() as u64).filter(|end| *end <= MAX_FILE_BYTES).ok_or(libc::EFBIG)?;
        let (ranges, is_over_limit) = {
            let mut state = self.state();
            state.check_error(seen_errors)?;
            state.dirty.write(offset, content);
            state.invalidate_chunks(offset, end);
            state.status.length = state.status.length.max(end);
            state.status.modified = SystemTime::now();
            state.status.etag.clear();
            let full =
                state.dirty.buffered_bytes() > MAX_BUFFERED_BYTES || state.dirty.n_buffered() > MAX_BUFFERED_RANGES;
            let ranges = if full { state.dirty.take_all() } else { state.dirty.take_full() };
            (ranges, full && state.dirty.buffered_bytes() > MAX_BUFFERED_BYTES)
        };
        self.send(batches(ranges)).await;
        if is_over_limit {
            // Ranges that overlap those in flight must wait for them; so does the program that writes more.
            self.upload_all().await;
        }
        Ok(())
    }

    /// Appends blocks at the current end on the server. Synchronous.
    pub async fn append(self: &Arc<Self>, content: &[u8], seen_errors: &SeenErrors) -> Result<(), i32> {
        self.state().check_error(seen_errors)?;
        self.upload_all().await;
        let mut number = self.append_lock.lock().await;
        for content in content.chunks(MAX_RANGE_BYTES) {
            *number += 1;
            let after = self.state().status.length;
            let block = AppendBlock {
                content: Bytes::copy_from_slice(content),
                file: self.inode,
                number: *number,
                retry_from: None,
            };
            let path = self.shared.path(self.inode)?;
            let appended = self.shared.retry.run(format!("append to {path}"), |is_retry| {
                let (block, path) =
                    (AppendBlock { retry_from: is_retry.then_some(after), ..block.clone() }, path.clone());
                async move { self.shared.remote.append(&path, &block).await }
            });
            let (_, status) = appended.await?;
            let mut state = self.state();
            state.chunks.clear();
            state.status = status;
        }
        Ok(())
    }

    pub async fn resize(self: &Arc<Self>, length: u64) -> Result<(), i32> {
        self.upload_all().await;
        let path = self.shared.path(self.inode)?;
        let operation = format!("set the length of {path}");
        self.shared.retry.run(operation, |_| self.shared.remote.resize(&path, length)).await?;
        let mut state = self.state();
        state.chunks.clear();
        state.status.length = length;
        state.status.modified = SystemTime::now();
        state.status.etag.clear();
        Ok(())
    }
}
