//! Operations on files and directories.

pub(crate) mod copy;
pub(crate) mod copy_source;
pub(crate) mod directories;
pub(crate) mod directory_listing;
pub(crate) mod download;
pub(crate) mod file_headers;
pub(crate) mod file_ops;
pub(crate) mod handles;
pub(crate) mod header_cache;
pub(crate) mod range_from_url;
pub(crate) mod range_write;
pub(crate) mod rename;
pub(crate) mod symlinks;
pub(crate) mod write_op;
