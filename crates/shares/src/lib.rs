//! Share trees on disk: `ROOT/{account}/{share}/...` are real directories that a human can look
//! into; blob containers are trees of the same kind in `ROOT/{account}/.containers/`. Entered by the file service, by the job API (listing output) and by the agent (appending
//! logs). Everything here is synchronous; callers choose the thread.
//!
//! The rule of the house: a path inside a share is a [`SharePath`], and it is resolved by the
//! kernel beneath the share's directory handle. No file is ever reached by joining strings, so a
//! path or a symbolic link that leads out of a share is refused and not followed.
//!
//! Reading order: `path`, `beneath` (the one way in), `root` and `trees` (whole shares and containers), then what can be done
//! inside one: `directory`, `file`, `append`; last `removal`.

mod append;
mod beneath;
mod directory;
mod error;
mod file;
mod names;
mod path;
mod removal;
mod root;
mod stat;
mod trees;

pub use append::Appender;
pub use directory::{Entry, Page, PageRequest};
pub use error::ShareError;
pub use names::{is_account_name, is_share_name};
pub use path::{PathError, SharePath};
pub use root::{Removed, Share, Shares};
pub use stat::{Kind, Stat};
pub use trees::TreeEntry;
