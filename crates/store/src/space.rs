//! Disk space that is set apart for the database, so that jobs can be ended and resources deleted while the disk is full. Blocks
//! are allocated to the files themselves (`fallocate` beyond their end), where no other process can take them:
//!
//! - the write-ahead log has more than it uses, so that a few hundred commits fit;
//! - the database has blocks for all its pages, also for those that lie in the log alone: so the log can always be copied into
//!   it and be begun anew;
//! - a row of the database ([`RESERVE_KIND`]) holds pages that a full database reuses instead of growing.
//!
//! Ordinary commits never use any of it. Where the file system cannot allocate blocks in advance, only the row is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// The row of the table `records` whose pages are the reserve. Versions that do not know the kind leave it alone.
pub(crate) const RESERVE_KIND: &str = "reserve";
pub(crate) const RESERVE_BYTES: usize = 512 << 10;
/// The row is made where so much is free, so that it is not what fills the disk.
const FREE_FOR_RESERVE: u64 = 4 << 20;
/// Of the log, beyond what it uses.
const WAL_RESERVE: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Of the database, beyond its pages: as much as ordinary commits grow it at a time.
pub(crate) const GROWTH_PAGES: u64 = 256;

/// May the transaction be one that adds something?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Ample,
    /// The disk is full: only what ends, removes or shrinks something.
    Reserve,
}

/// How many pages a database may have without a block that another process could take first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageLimit {
    /// The file system cannot allocate in advance.
    Unknown,
    /// As many as were asked for.
    Whole(u64),
    /// Fewer: the disk is full.
    Full(u64),
}

pub(crate) struct Allocation {
    /// Closed after every connection of this process: to close any handle of a file releases the locks that SQLite has on it.
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

    /// Has the log its reserve, or can it be given it?
    pub fn ensure_wal(&mut self) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(&self.wal) {
            // The first commit makes it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        let used = file.metadata()?.len();
        ensure(&file, &mut self.is_supported, used + WAL_RESERVE, used + 2 * WAL_RESERVE)
    }

    /// Gives a database of `pages` pages blocks for `more` beyond them.
    pub fn ensure_pages(&mut self, pages: u64, more: u64) -> io::Result<PageLimit> {
        let bytes = (pages + more) * PAGE;
        let is_whole = ensure(&self.database, &mut self.is_supported, bytes, bytes)?;
        Ok(match (self.is_supported, is_whole) {
            (false, _) => PageLimit::Unknown,
            (true, true) => PageLimit::Whole(pages + more),
            (true, false) => PageLimit::Full((allocated(&self.database)? / PAGE).clamp(pages, pages + more)),
        })
    }

    /// Is there space to make the reserve again?
    pub fn has_space(&self) -> bool {
        statvfs(&self.directory).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >= FREE_FOR_RESERVE)
    }
}

/// Allocates blocks up to `wanted`, or at least up to `least`. `false` when the disk is full.
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
