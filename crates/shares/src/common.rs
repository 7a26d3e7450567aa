//! State that all handles of one root share.

use std::{fs::File, sync::atomic::AtomicBool};

use crate::{inode_locks::InodeLocks, usage::UsageCache};

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Common {
    /// The directory that holds the accounts.
    pub root: File,
    pub property_storage: PropertyStorage,
    /// Whether anything was ever kept beside the accounts. Only ever gains.
    pub has_sidecars: AtomicBool,
    pub usage_cache: UsageCache,
    pub inode_locks: InodeLocks,
}

/// Whether extended attributes may be used at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyStorage {
    ExtendedAttributes,
    /// For disks that take attributes and lose them.
    SidecarsOnly,
}
