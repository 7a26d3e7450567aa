//! Requests that are several steps on the volume: `setattr`, `mknod` and `fallocate`.

use std::time::SystemTime;

use fuser::TimeOrNow;

use super::FuseFs;
use crate::remote::{Remote, Status};
use crate::volume::{Lookup, OpenOptions};

impl<R: Remote> FuseFs<R> {
    /// Sets length and modification time as far as given, and returns the attributes after it.
    pub(super) async fn set_attributes(
        &self,
        inode: u64,
        size: Option<u64>,
        mtime: Option<TimeOrNow>,
    ) -> Result<Status, i32> {
        if let Some(size) = size {
            self.volume.resize(inode, size).await?;
        }
        let modified = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        if let Some(modified) = modified {
            self.volume.set_modified(inode, modified).await?;
        }
        self.volume.attributes(inode).await
    }

    /// Creates an empty file and leaves it closed.
    pub(super) async fn make_file(&self, parent: u64, name: &str) -> Result<Lookup, i32> {
        let options = OpenOptions { exclusive: true, ..OpenOptions::default() };
        let (found, opened) = self.volume.create(parent, name, options).await?;
        self.volume.release(opened.handle).await;
        Ok(found)
    }

    /// Extends a file to hold `length` bytes from `offset` on. Never shortens it.
    pub(super) async fn allocate(&self, inode: u64, offset: u64, length: u64) -> Result<(), i32> {
        let status = self.volume.attributes(inode).await?;
        match offset.checked_add(length).ok_or(libc::EFBIG)? {
            end if end > status.length => self.volume.resize(inode, end).await,
            _ => Ok(()),
        }
    }
}
