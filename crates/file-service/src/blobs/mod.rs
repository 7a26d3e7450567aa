//! Requests about blobs, which are the files of a container: what the blob service has and the file service has not.
//! Whole blobs in (`put`), in blocks (`blocks`), listings, deletion. Reading, properties and metadata are those of files.
//!
//! A blob takes its name when all of it is there, in one step: an upload that breaks off changes nothing.

pub(crate) mod blob_ops;
pub(crate) mod blocks;
pub(crate) mod body_to_staging;
pub(crate) mod containers;
pub(crate) mod publication;
