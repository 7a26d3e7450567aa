//! Share trees on disk: `ROOT/{account}/{share}/…` are plain directories. Blob containers are trees of the same kind in
//! `ROOT/{account}/.containers/`. All functions are synchronous; callers choose the thread.
//!
//! Safety rule: a path inside a share is a [`SharePath`], and the kernel resolves it beneath the share's directory
//! handle. Paths are never built by joining strings, so a path or symbolic link that leads out of a share is rejected.
//! Symbolic links are entries of their own (`links`): only the resolution of a named path follows them, never a
//! listing, a walk or a deletion.
//!
//! Reading order, from below. Folders add methods to [`Share`] and [`Shares`], which `namespace::root` defines; otherwise
//! a folder imports only those before it.
//! - `tree`: names, paths, resolution beneath a handle, attributes, walks, removals
//! - `shared_state`: what all handles of one root share
//! - `properties`: what is stored beside the content
//! - `content` and `entries`: operations on files and directories of a share
//! - `namespace`: whole shares and containers, snapshots
//! - `volume_dir`: for agents, which write job output into volumes

mod content;
mod entries;
mod error;
mod namespace;
mod properties;
mod shared_state;
mod tree;
mod volume_dir;

pub use content::append::Appender;
pub use content::nonblocking::{CachedFile, FileVersion, read_nonblocking};
pub use content::staging::{Block, StagedFile};
pub use entries::directory::{Entry, Page, PageRequest};
pub use entries::flat_listing::{FlatEntry, FlatPage, FlatRequest};
pub use entries::links::{Link, MAX_LINK_TEXT};
pub use error::ShareError;
pub use namespace::root::{Removal, Share, Shares};
pub use namespace::share_admin::TreeEntry;
pub use namespace::snapshot_diff::SnapshotDiff;
pub use namespace::snapshots::SnapshotId;
pub use properties::permissions::MAX_PERMISSION;
pub use properties::{MAX_PROPERTIES, Properties};
pub use shared_state::common::PropertyStorage;
pub use tree::names::{is_account_name, is_share_name};
pub use tree::path::{PathError, SharePath};
pub use tree::stat::{Kind, Stat};
pub use volume_dir::VolumeDir;
