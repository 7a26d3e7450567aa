//! Attributes of a file, directory or link, and its ETag.

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    time::SystemTime,
};

use crate::{ShareError, SharePath};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// 0 for a directory; for a link the length of its target path.
    pub len: u64,
    pub modified: SystemTime,
    /// The mtime if the file system records no birth time.
    pub created: SystemTime,
    /// Quoted. Stays the same until the content is modified, also across restarts.
    pub etag: String,
    /// Inode number: unique within a share as long as the file exists.
    pub id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// A symbolic link that was not followed.
    Link,
}

impl Stat {
    /// `None` for FIFOs, sockets and devices, which shares do not show.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Option<Self> {
        let kind = match metadata.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_dir() => Kind::Directory,
            t if t.is_symlink() => Kind::Link,
            _ => return None,
        };
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let len = if kind == Kind::Directory { 0 } else { metadata.len() };
        Some(Stat {
            kind,
            len,
            modified,
            created: metadata.created().unwrap_or(modified),
            etag: etag(metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), len),
            id: metadata.ino(),
        })
    }

    pub(crate) fn from_file(file: &File, path: &SharePath) -> Result<Self, ShareError> {
        let metadata = file.metadata().map_err(|source| ShareError::Io {
            attempt: "read the properties of",
            path: path.clone(),
            source,
        })?;
        Self::from_metadata(&metadata).ok_or_else(|| ShareError::WrongKind(path.clone()))
    }
}

/// `"0x8D…"`: 64-bit hash of inode, mtime and length. The ctime is not included: it also changes with permissions and
/// links, and a downloader would take that for new content.
fn etag(inode: u64, mtime: i64, mtime_nsec: i64, len: u64) -> String {
    let mut hash = 0u64;
    for word in [inode, mtime as u64, mtime_nsec as u64, len] {
        // The finalizer of SplitMix64: stable forever, unlike the standard library's hasher.
        hash = (hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^= hash >> 31;
    }
    format!("\"0x8D{hash:016X}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_depend_on_each_attribute_and_have_azures_format() {
        let first = etag(1, 2, 3, 4);
        assert_eq!(first, etag(1, 2, 3, 4));
        for other in [etag(2, 2, 3, 4), etag(1, 3, 3, 4), etag(1, 2, 4, 4), etag(1, 2, 3, 5)] {
            assert_ne!(first, other);
        }
        assert!(first.starts_with("\"0x8D") && first.ends_with('"') && first.len() == 22);
    }
}
