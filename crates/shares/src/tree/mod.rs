//! Access to trees on disk, below everything else: names and paths that are valid (`names`, `path`), their resolution
//! beneath a directory handle (`beneath`, the only way to open a file; `dirs` for the directories of accounts),
//! attributes (`stat`), walks and removals of whole trees (`walk`, `removal`). Never builds a path by joining strings,
//! never follows a link out of a tree.

pub(crate) mod beneath;
pub(crate) mod dirs;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod removal;
pub(crate) mod stat;
pub(crate) mod walk;
