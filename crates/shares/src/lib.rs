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
mod cached;
mod copy;
mod described;
mod difference;
mod directory;
mod drafts;
mod error;
mod file;
mod keeping;
mod links;
mod listing;
mod names;
mod path;
mod permissions;
mod properties;
mod removal;
mod rename;
mod root;
mod snapshots;
mod stat;
mod trees;
mod turns;
mod usage;
mod volume_dir;
mod walk;

pub use append::Appender;
pub use cached::{Cached, Mark, read_cached};
pub use difference::Difference;
pub use directory::{Entry, Page, PageRequest};
pub use drafts::{Block, Draft};
pub use error::ShareError;
pub use keeping::Keeping;
pub use links::{Link, MAX_LINK_TEXT};
pub use listing::{Flat, FlatPage, FlatRequest};
pub use names::{is_account_name, is_share_name};
pub use path::{PathError, SharePath};
pub use permissions::MAX_PERMISSION;
pub use properties::{MAX_PROPERTIES, Properties};
pub use root::{Removed, Share, Shares};
pub use snapshots::SnapshotId;
pub use stat::{Kind, Stat};
pub use trees::TreeEntry;
pub use volume_dir::VolumeDir;
