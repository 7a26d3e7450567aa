//! Creation of the file on the server. It may be deferred until the first content is sent, so that a small new file
//! costs one request. One creation at a time.

use std::sync::atomic::Ordering;

use super::OpenFile;
use crate::remote::Remote;
use crate::writeback::DirtyRange;

impl<R: Remote> OpenFile<R> {
    /// Whether the file exists on the server.
    pub fn is_created(&self) -> bool {
        self.is_created.load(Ordering::Acquire)
    }

    /// Creates the file on the server if it does not exist yet. True if this was done together with the content.
    pub(super) async fn create_with_content(&self, batch: &[DirtyRange]) -> Result<bool, i32> {
        if self.is_created() {
            return Ok(false);
        }
        let _guard = self.create_lock.lock().await;
        if self.is_created() {
            return Ok(false);
        }
        let created = self.create_on_server(batch).await;
        // Set even on failure, which is reported to the writers: the creation is not repeated forever.
        self.is_created.store(true, Ordering::Release);
        created
    }

    async fn create_on_server(&self, batch: &[DirtyRange]) -> Result<bool, i32> {
        let (path, remote) = (self.shared.path(self.inode)?, &self.shared.remote);
        let operation = || format!("create {path}");
        let with_content = async {
            match batch {
                [] => Ok(false),
                batch => self.shared.retry.run(operation(), |_| remote.create_with(&path, batch)).await,
            }
        };
        let created = match with_content.await {
            Ok(true) => return Ok(true),
            Ok(false) => self.shared.retry.run(operation(), |_| remote.create(&path)).await,
            Err(errno) => Err(errno),
        };
        match created {
            // Created by another machine, or by an attempt whose answer was lost: it is opened and truncated.
            Err(libc::EEXIST) => self.shared.retry.run(operation(), |_| remote.resize(&path, 0)).await.map(|()| false),
            created => created.map(|()| false),
        }
    }

    /// Creates the file on the server if its creation was deferred. An error is reported to the writers.
    pub async fn ensure_created(&self) {
        if let Err(errno) = self.create_with_content(&[]).await {
            self.state().record_error(errno);
        }
    }
}
