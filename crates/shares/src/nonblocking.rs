//! Small files without waiting: everything that is asked of the kernel here it answers from its caches or not at all
//! (`RESOLVE_CACHED`, `RWF_NOWAIT`). Entered by the file service on threads that must not wait for a disk. Whoever gets `None` asks
//! again the usual way, where there is time: nothing can be concluded from it, not even that a file is missing.

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

use crate::{Kind, Properties, SharePath, Shares, Stat, beneath, dirs::check_names, property_store};

/// Times of changes are not told more exactly than this by any disk: a file that was changed longer ago has another time after the next change.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(2);

/// An open file that was looked at once.
#[derive(Debug)]
pub struct CachedFile {
    pub file: File,
    metadata: Metadata,
}

/// Which file, and how long unchanged. Two looks that gave the same mark saw the same: content by its time and length, what is kept with it,
/// and the directory it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    id: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Shares {
    /// A file of a share. One that is reached through a link is left to the usual way.
    pub fn open_nonblocking(&self, account: &str, share: &str, path: &SharePath) -> Option<CachedFile> {
        let file = beneath::open_nonblocking(&self.common.root, &full_path(account, share, path)?)?;
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        Some(CachedFile { file, metadata })
    }

    /// What the marks of a file stand for. None where something could change and the mark would not: it has just been changed, has
    /// other names in other directories, or what is kept with files here lies elsewhere.
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

    /// What is known of a file, and what is kept with it.
    pub fn describe_nonblocking(&self, CachedFile { file, metadata }: &CachedFile) -> Option<(Stat, Properties)> {
        let stat = Stat::from_metadata(metadata).filter(|stat| stat.kind == Kind::File)?;
        Some((stat, property_store::read_nonblocking(&self.common, file)?))
    }

    /// The id of the directory that holds something.
    pub fn parent_id_nonblocking(&self, account: &str, share: &str, path: &SharePath) -> Option<u64> {
        let (above, _) = path.split()?;
        let directory = beneath::open_dir_nonblocking(&self.common.root, &full_path(account, share, &above)?)?;
        Some(fstat(&directory).ok()?.st_ino)
    }
}

impl FileVersion {
    /// Distinct on a disk as long as the file exists.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// From the root of all shares. One walk is enough: none of the names is `..`, and no link is followed.
fn full_path(account: &str, share: &str, path: &SharePath) -> Option<String> {
    check_names(account, share).ok()?;
    Some(match path.is_root() {
        true => [account, "/", share].concat(),
        false => [account, "/", share, "/", path.as_str()].concat(),
    })
}

/// All bytes of a range, which the file must have.
pub fn read_nonblocking(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadWriteFlags::NOWAIT);
    (read == Ok(bytes.len())).then_some(bytes)
}
