//! Query parameters that say whether a request addresses a share or a directory.

pub(super) const SHARE: (&str, &str) = ("restype", "share");
pub(super) const DIRECTORY: (&str, &str) = ("restype", "directory");
