//! Uploads of dirty ranges in batches, bounded by the permits of the mount. A failed upload is recorded for the writers.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::{OpenFile, SeenErrors};
use crate::remote::Remote;
use crate::writeback::{DirtyRange, batches};

impl<R: Remote> OpenFile<R> {
    /// Uploads everything, waits, and returns an error that the handle has not returned yet.
    pub async fn flush(self: &Arc<Self>, seen_errors: &SeenErrors) -> Result<(), i32> {
        self.upload_all().await;
        self.state().take_error(seen_errors)
    }

    /// Returns when everything written is on the server's disk.
    pub async fn sync(self: &Arc<Self>, seen_errors: &SeenErrors) -> Result<(), i32> {
        self.flush(seen_errors).await?;
        let path = self.shared.path(self.inode)?;
        self.shared.retry.run(format!("flush {path}"), |_| self.shared.remote.sync(&path)).await
    }

    /// Uploads everything and waits until it has arrived or failed.
    pub async fn upload_all(self: &Arc<Self>) {
        loop {
            let mut uploaded = std::pin::pin!(self.uploaded.notified());
            uploaded.as_mut().enable();
            let (ranges, clean) = {
                let mut state = self.state();
                let ranges = state.dirty.take_all();
                (ranges, state.dirty.is_clean())
            };
            if clean {
                return self.ensure_created().await;
            }
            let mut batches = batches(ranges);
            match batches.len() {
                0 => uploaded.await,
                1 => {
                    // A single batch is sent on the waiting thread.
                    let permit = self.permit().await;
                    self.deliver(&batches.remove(0), permit).await;
                }
                _ => self.send(batches).await,
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        self.shared.uploads.clone().acquire_owned().await.expect("nobody closes it")
    }

    pub(super) async fn send(self: &Arc<Self>, batches: Vec<Vec<DirtyRange>>) {
        for batch in batches {
            let (permit, file) = (self.permit().await, self.clone());
            self.shared.runtime.spawn(async move { file.deliver(&batch, permit).await });
        }
    }

    async fn deliver(&self, batch: &[DirtyRange], permit: OwnedSemaphorePermit) {
        let result = self.upload(batch).await;
        drop(permit);
        self.on_uploaded(batch, result);
    }

    async fn upload(&self, batch: &[DirtyRange]) -> Result<(), i32> {
        if self.create_with_content(batch).await? {
            return Ok(());
        }
        loop {
            let path = self.shared.path(self.inode)?;
            let operation = format!("write {path}");
            match self.shared.retry.run(operation, |_| self.shared.remote.write(&path, batch)).await {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                result => return result,
            }
        }
    }

    fn on_uploaded(&self, batch: &[DirtyRange], result: Result<(), i32>) {
        let mut state = self.state();
        for range in batch {
            state.dirty.on_uploaded(range.offset);
            // Chunks fetched during the upload may contain old content.
            state.invalidate_chunks(range.offset, range.offset + range.content.len() as u64);
        }
        if let Err(errno) = result {
            state.record_error(errno);
        }
        drop(state);
        self.uploaded.notify_waiters();
    }
}
