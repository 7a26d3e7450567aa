//! Operations of the blob service that the file service does not have. A blob is a file of a container. Reads,
//! properties and metadata are those of files.
//!
//! A blob gets its name when it is complete, in one rename: an interrupted upload changes nothing.

pub(crate) mod blob_ops;
pub(crate) mod blocks;
pub(crate) mod body_to_staging;
pub(crate) mod containers;
pub(crate) mod publication;
