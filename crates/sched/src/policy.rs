//! The values a site may choose: how long is long. Handed in with the snapshot; nothing here is read from anywhere.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A job that has waited so long counts as one priority higher, and after twice as long as two.
    pub rise_after: Duration,
    /// A node of a cluster with autoScale that nobody needs leaves when it has been idle for so long.
    pub idle_timeout: Duration,
    /// A node that was asked for is expected within this; afterwards nobody counts on it until it is there.
    pub node_start_timeout: Duration,
    /// A dedicated node that no machine has become for so long gets that of a low-priority one.
    pub reclaim_after: Duration,
    /// So many jobs behind the first that does not fit are looked at for one that may start before it.
    pub backfill_depth: usize,
}

impl Policy {
    pub const STANDARD: Self = Self {
        rise_after: Duration::from_secs(6 * 3600),
        idle_timeout: Duration::from_secs(60),
        node_start_timeout: Duration::from_secs(5 * 60),
        reclaim_after: Duration::from_secs(20),
        backfill_depth: 1_000,
    };
}
