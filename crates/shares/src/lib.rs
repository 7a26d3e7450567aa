//! Share trees on disk: `ROOT/{account}/{share}/...` are real directories that a human can look
//! into; blob containers are trees of the same kind in `ROOT/{account}/.containers/`. Entered by the file service, by the job API (listing output) and by the agent (appending
//! logs). Everything here is synchronous; callers choose the thread.
//!
//! The rule of the house: a path inside a share is a [`SharePath`], and it is resolved by the
//! kernel beneath the share's directory handle. No file is ever reached by joining strings, so a
//! path or a symbolic link that leads out of a share is refused and not followed. Links are entries of their own (`links`): only
//! the resolution of a named path follows them, never a listing, a walk or a deletion.
//!
//! Reading order: `path`, `beneath` (the one way in), `root` and `trees` (whole shares and containers), then what can be done
//! inside one: `directory`, `links`, `listing`, `file`, `cached`, `append`, `copy`, `rename`, `drafts`; what is kept beside the content: `properties`,
//! `keeping`, `turns`, `described`, `permissions`; `walk` with `usage`, `snapshots` and `difference`; last `removal`. `volume_dir` is what agents use to write a job's
//! output into a volume.

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
