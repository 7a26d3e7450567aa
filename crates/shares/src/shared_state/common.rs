//! State shared by all handles of one root.

use std::{fs::File, sync::atomic::AtomicBool};

use crate::shared_state::{inode_locks::InodeLocks, usage::UsageCache};

/// Shared by a [`crate::Shares`] and all its [`crate::Share`]s.
#[derive(Debug)]
pub(crate) struct Common {
    /// Directory that holds the accounts.
    pub root: File,
    pub property_storage: PropertyStorage,
    /// Whether sidecar files of properties may exist. Never reset.
    pub has_sidecars: AtomicBool,
    pub usage_cache: UsageCache,
    pub inode_locks: InodeLocks,
}

/// Storage of properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyStorage {
    ExtendedAttributes,
    /// For file systems that accept extended attributes and lose them.
    SidecarsOnly,
}
