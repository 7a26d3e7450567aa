//! Open directories of a mounted share, listed page by page as far as requested.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Volume, lock};
use crate::remote::{Entry, Remote};

/// An open directory as far as it was listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    entries: Vec<Entry>,
    next: Option<String>,
    begun: bool,
}

impl<R: Remote> Volume<R> {
    pub fn open_directory(&self) -> u64 {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.listings).insert(handle, Arc::default());
        handle
    }

    pub fn release_directory(&self, handle: u64) {
        lock(&self.listings).remove(&handle);
    }

    /// Entries from index `start` on, as many as have been fetched; empty at the end.
    pub async fn entries(&self, inode: u64, handle: u64, start: usize, max: usize) -> Result<Vec<Entry>, i32> {
        let listing = lock(&self.listings).get(&handle).cloned().ok_or(libc::EBADF)?;
        let mut listing = listing.lock().await;
        if start == 0 {
            // Reading from the start lists the directory anew.
            self.create_deferred_below(inode).await;
            *listing = Listing::default();
        }
        while listing.entries.len() <= start && (!listing.begun || listing.next.is_some()) {
            let path = self.shared.path(inode)?;
            let from = listing.next.take().unwrap_or_default();
            let page = self.shared.retry.run(format!("list {path}"), |_| self.remote().list(&path, &from)).await;
            let page = match page {
                Ok(page) => page,
                Err(errno) => {
                    listing.next = Some(from).filter(|from| !from.is_empty());
                    return Err(errno);
                }
            };
            listing.begun = true;
            listing.entries.extend(page.entries);
            listing.next = page.next;
        }
        Ok(listing.entries.iter().skip(start).take(max).cloned().collect())
    }
}
