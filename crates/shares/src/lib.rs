//! Share trees on disk: `ROOT/{account}/{share}/…` are plain directories. Blob containers are trees of the same kind in
//! `ROOT/{account}/.containers/`. All functions are synchronous; callers choose the thread.
//!
//! Safety rule: a path inside a share is a [`SharePath`], and the kernel resolves it beneath the share's directory
//! handle. Paths are never built by joining strings, so a path or symbolic link that leads out of a share is rejected.
//! Symbolic links are entries of their own (`links`): only the resolution of a named path follows them, never a
//! listing, a walk or a deletion.
//!
//! Reading order:
//! - `path`, `beneath` (the only way to open a file), `dirs`, `common`
//! - `root` and `share_admin`: whole shares and containers
//! - `directory`, `links`, `flat_listing`, `file`, `nonblocking`, `append`, `copy`, `rename`, `staging`: operations
//!   inside a share
//! - `properties`, `property_store`, `inode_locks`, `property_ops`, `permissions`: what is stored beside the content
//! - `walk` with `usage`, `snapshots`, `snapshot_diff`; last `removal`
//! - `volume_dir`: for agents, which write job output into volumes

mod append;
mod beneath;
mod common;
mod copy;
mod directory;
mod dirs;
mod error;
mod file;
mod flat_listing;
mod inode_locks;
mod links;
mod names;
mod nonblocking;
mod path;
mod permissions;
mod properties;
mod property_ops;
mod property_store;
mod removal;
mod rename;
mod root;
mod share_admin;
mod snapshot_diff;
mod snapshots;
mod staging;
mod stat;
mod usage;
mod volume_dir;
mod walk;

pub use append::Appender;
pub use common::PropertyStorage;
pub use directory::{Entry, Page, PageRequest};
pub use error::ShareError;
pub use flat_listing::{FlatEntry, FlatPage, FlatRequest};
pub use links::{Link, MAX_LINK_TEXT};
pub use names::{is_account_name, is_share_name};
pub use nonblocking::{CachedFile, FileVersion, read_nonblocking};
pub use path::{PathError, SharePath};
pub use permissions::MAX_PERMISSION;
pub use properties::{MAX_PROPERTIES, Properties};
pub use root::{Removal, Share, Shares};
pub use share_admin::TreeEntry;
pub use snapshot_diff::SnapshotDiff;
pub use snapshots::SnapshotId;
pub use staging::{Block, StagedFile};
pub use stat::{Kind, Stat};
pub use volume_dir::VolumeDir;
