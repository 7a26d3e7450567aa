//! Disk usage of a share, and its quota. Writes of jobs through mounts are seen at the next measurement, so a quota is
//! exact only to within that time.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{Share, ShareError, SharePath, tree::walk::WalkEntry};

/// Lifetime of a measurement. Walking a large tree for each new file would cost more than a quota is worth.
const USAGE_TTL: Duration = Duration::from_secs(30);

/// Last measured usage of shares.
#[derive(Debug, Default)]
pub(crate) struct UsageCache(Mutex<HashMap<ShareKey, Measurement>>);

/// Device and inode of a share's root.
type ShareKey = (u64, u64);
/// Time of the measurement, and bytes.
type Measurement = (Instant, u64);

impl Share {
    /// Sum of the lengths of all files. Links are not followed.
    pub fn usage(&self) -> Result<u64, ShareError> {
        let mut bytes = 0u64;
        self.walk(|_, found| {
            if let WalkEntry::File(stat) = found {
                bytes = bytes.saturating_add(stat.len);
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Like [`Share::usage`], from the last measurement if it is recent.
    pub fn cached_usage(&self) -> Result<u64, ShareError> {
        let (key, cached) = self.cached_entry()?;
        if let Some((_, used)) = cached.filter(|(at, _)| at.elapsed() < USAGE_TTL) {
            return Ok(used);
        }
        let used = self.usage()?;
        if let Ok(mut measured) = self.common.usage_cache.0.lock() {
            measured.insert(key, (Instant::now(), used));
        }
        Ok(used)
    }

    /// Key of this share in the cache, and its last measurement.
    fn cached_entry(&self) -> Result<(ShareKey, Option<Measurement>), ShareError> {
        let failed = |source| ShareError::Io { attempt: "measure", path: SharePath::ROOT, source };
        let root = self.root.metadata().map_err(failed)?;
        let key = (root.dev(), root.ino());
        Ok((key, self.common.usage_cache.0.lock().ok().and_then(|measured| measured.get(&key).copied())))
    }

    /// Fails if `more` bytes would exceed the quota, else adds them to the cached usage.
    pub fn reserve_quota(&self, path: &SharePath, more: u64, quota: u64) -> Result<(), ShareError> {
        if more == 0 {
            return Ok(());
        }
        let (key, cached) = self.cached_entry()?;
        let (at, used) = match cached {
            Some((at, used)) if at.elapsed() < USAGE_TTL && used.saturating_add(more) <= quota => (at, used),
            // Expired, or full: files may have been deleted since.
            _ => (Instant::now(), self.usage()?),
        };
        let total = used.saturating_add(more);
        if total > quota {
            return Err(ShareError::QuotaReached { path: path.clone(), used, quota });
        }
        if let Ok(mut measured) = self.common.usage_cache.0.lock() {
            measured.retain(|_, (at, _)| at.elapsed() < USAGE_TTL);
            measured.insert(key, (at, total));
        }
        Ok(())
    }
}
