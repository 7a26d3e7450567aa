//! Reads of small files that never wait for a disk: the kernel answers from its caches or not at all (`RESOLVE_CACHED`,
//! `RWF_NOWAIT`). For threads that serve connections. `None` means unknown, not even that a file is missing; the caller
//! repeats the operation on a blocking thread.

use std::{
    fs::{File, Metadata},
    io::IoSliceMut,
    ops::Range,
    os::unix::fs::MetadataExt,
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::fstat,
    io::{ReadWriteFlags, preadv2},
};

use crate::{
    Kind, Properties, SharePath, Shares, Stat,
    properties::property_store,
    tree::{beneath, dirs::check_names},
};

/// Upper bound of the granularity of ctime on any file system: a file changed longer ago gets another ctime with the
/// next change.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(2);

/// An open file with its attributes.
#[derive(Debug)]
pub struct CachedFile {
    pub file: File,
    metadata: Metadata,
}

/// Version of a file: inode, length, mtime and ctime. Equal versions have equal content, equal properties and the same
/// parent directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    id: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Shares {
    /// Opens a file of a share. `None` also for a path through a link.
    pub fn open_nonblocking(&self, account: &str, share: &str, path: &SharePath) -> Option<CachedFile> {
        let file = beneath::open_nonblocking(&self.common.root, &full_path(account, share, path)?)?;
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        Some(CachedFile { file, metadata })
    }

    /// Version of a file. `None` if a change might not show in it: the file was just changed, has hard links, or this
    /// root has sidecar files of properties.
    pub fn version_of(&self, CachedFile { metadata, .. }: &CachedFile) -> Option<FileVersion> {
        let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(metadata.ctime()).ok()?);
        let is_settled = SystemTime::now().duration_since(changed).is_ok_and(|since| since > TIMESTAMP_GRANULARITY);
        let is_reliable = is_settled && metadata.nlink() == 1 && !self.common.has_sidecars.load(Ordering::Acquire);
        is_reliable.then(|| FileVersion {
            device: metadata.dev(),
            id: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Attributes and properties of a file.
    pub fn describe_nonblocking(&self, CachedFile { file, metadata }: &CachedFile) -> Option<(Stat, Properties)> {
        let stat = Stat::from_metadata(metadata).filter(|stat| stat.kind == Kind::File)?;
        Some((stat, property_store::read_nonblocking(&self.common, file)?))
    }

    /// Inode number of the parent directory.
    pub fn parent_id_nonblocking(&self, account: &str, share: &str, path: &SharePath) -> Option<u64> {
        let (above, _) = path.split()?;
        let directory = beneath::open_dir_nonblocking(&self.common.root, &full_path(account, share, &above)?)?;
        Some(fstat(&directory).ok()?.st_ino)
    }
}

impl FileVersion {
    /// Inode number.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// Path from the root of all shares. Safe to resolve at once: no component is `..` and no link is followed.
fn full_path(account: &str, share: &str, path: &SharePath) -> Option<String> {
    check_names(account, share).ok()?;
    Some(match path.is_root() {
        true => [account, "/", share].concat(),
        false => [account, "/", share, "/", path.as_str()].concat(),
    })
}

/// All bytes of a range, which must lie within the file.
pub fn read_nonblocking(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadWriteFlags::NOWAIT);
    (read == Ok(bytes.len())).then_some(bytes)
}
