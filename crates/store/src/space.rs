//! Disk space reserved for the database, so that jobs can end and resources can be deleted on a full disk. Blocks are
//! allocated to the files themselves (`fallocate` beyond their end), where no other process can take them:
//!
//! - the write-ahead log has more than it uses, enough for a few hundred commits;
//! - the database has blocks for all its pages, also for those that are only in the log, so a checkpoint always
//!   succeeds;
//! - a row of the database ([`RESERVE_KIND`]) holds pages that a full database reuses instead of growing.
//!
//! Ordinary commits never use the reserve. On file systems without preallocation, only the row remains.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Kind of the row in table `records` whose pages are the reserve. Versions that do not know the kind ignore it.
pub(crate) const RESERVE_KIND: &str = "reserve";
pub(crate) const RESERVE_BYTES: usize = 512 << 10;
/// Free bytes that are required before the row is created, so that it does not fill the disk itself.
const FREE_FOR_RESERVE: u64 = 4 << 20;
/// Bytes of the log beyond its used part.
const WAL_RESERVE: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Pages of the database beyond the used ones: the growth step of ordinary commits.
pub(crate) const GROWTH_PAGES: u64 = 256;

/// Space that a transaction may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Ample,
    /// The disk is full: only changes that end, remove or shrink something.
    Reserve,
}

/// Pages that the database may have with all blocks allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageLimit {
    /// The file system cannot preallocate.
    Unknown,
    /// As many as requested.
    Whole(u64),
    /// Fewer than requested: the disk is full.
    Full(u64),
}

pub(crate) struct Allocation {
    /// Closed after every connection of this process, because closing any handle of a file releases SQLite's POSIX
    /// locks on it.
    database: File,
    wal: PathBuf,
    directory: PathBuf,
    is_supported: bool,
}

impl Allocation {
    pub fn new(database: &Path) -> io::Result<Self> {
        let directory = database.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self {
            database: OpenOptions::new().read(true).write(true).open(database)?,
            wal: crate::sqlite_header::sibling(database, "-wal"),
            directory: directory.to_owned(),
            is_supported: true,
        })
    }

    /// Whether the log has its reserve or could be given it.
    pub fn ensure_wal(&mut self) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(&self.wal) {
            // The first commit creates the log.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        let used = file.metadata()?.len();
        ensure(&file, &mut self.is_supported, used + WAL_RESERVE, used + 2 * WAL_RESERVE)
    }

    /// Allocates blocks for `more` pages beyond the `pages` of the database.
    pub fn ensure_pages(&mut self, pages: u64, more: u64) -> io::Result<PageLimit> {
        let bytes = (pages + more) * PAGE;
        let is_whole = ensure(&self.database, &mut self.is_supported, bytes, bytes)?;
        Ok(match (self.is_supported, is_whole) {
            (false, _) => PageLimit::Unknown,
            (true, true) => PageLimit::Whole(pages + more),
            (true, false) => PageLimit::Full((allocated(&self.database)? / PAGE).clamp(pages, pages + more)),
        })
    }

    /// Whether the disk has space to create the reserve again.
    pub fn has_space(&self) -> bool {
        statvfs(&self.directory).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >= FREE_FOR_RESERVE)
    }
}

/// Allocates blocks up to `wanted`, or at least up to `least`. `false` if the disk is full.
fn ensure(file: &File, is_supported: &mut bool, least: u64, wanted: u64) -> io::Result<bool> {
    if !*is_supported || allocated(file)? >= least {
        return Ok(true);
    }
    for bytes in [wanted, least] {
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Ok(()) => return Ok(true),
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                *is_supported = false;
                return Ok(true);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(false)
}

fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}
