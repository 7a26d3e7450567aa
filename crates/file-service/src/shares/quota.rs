//! Quota of a share, in GiB, kept among its properties.

use corro_shares::{Properties, Share, ShareError, SharePath};

/// Fails if the share has a quota and `path` with `len` bytes would exceed it.
pub(crate) fn check_quota(share: &Share, path: &SharePath, len: u64) -> Result<(), ShareError> {
    if len == 0 {
        return Ok(());
    }
    let Some(quota) = quota_bytes(share)? else { return Ok(()) };
    let old = share.stat(path).map_or(0, |stat| stat.len);
    share.reserve_quota(path, len.saturating_sub(old), quota)
}

/// Quota in bytes; `None` if none is set.
pub(crate) fn quota_bytes(share: &Share) -> Result<Option<u64>, ShareError> {
    let (_, properties) = share.describe(&SharePath::ROOT)?;
    let quota = properties.get(QUOTA).and_then(|text| text.parse::<u64>().ok());
    Ok(quota.map(|quota| quota.saturating_mul(1 << 30)))
}

/// Reported for a share without a quota. Not enforced; the disk is the limit.
const DEFAULT_QUOTA_GIB: u64 = 5120;

/// Azure's limit.
pub(crate) const MAX_QUOTA_GIB: u64 = 102_400;

/// Request header, response header and property name.
pub(crate) const QUOTA: &str = "x-ms-share-quota";

pub(crate) fn quota_gib(properties: &Properties) -> u64 {
    properties.get(QUOTA).and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_QUOTA_GIB)
}
