//! The root that holds all accounts, and the shares in it: making, finding, listing and deleting
//! whole shares. Entered by everything that touches a share, for a [`Share`] handle. Must never
//! follow a symbolic link in place of an account or share.

use std::{
    fs::{DirBuilder, File},
    io,
    os::{fd::AsFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fs::{Dir, Mode, OFlags, ResolveFlags, mkdirat, openat2},
    io::Errno,
};

use crate::{Kind, ShareError, SharePath, Stat, is_account_name, is_share_name, removal};

/// All share trees of a server.
#[derive(Debug)]
pub struct Shares {
    root: File,
    path: PathBuf,
    unswept: Vec<ShareError>,
}

/// A handle on one share; it stays on that tree even if the share is renamed or deleted.
#[derive(Debug)]
pub struct Share {
    pub(crate) root: File,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareEntry {
    pub name: String,
    pub modified: SystemTime,
    pub etag: String,
}

/// A share or account that is gone for every caller.
#[derive(Debug)]
#[must_use]
pub struct Removed {
    /// What kept some of its bytes on the disk; they are tried again when the root is next opened.
    pub left_behind: Option<ShareError>,
}

impl Shares {
    /// Opens the root, makes it (mode 0700) if it is not there, and removes what a crash in the
    /// middle of a deletion left.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, ShareError> {
        let failed = |attempt| move |source| ShareError::ShareIo { attempt, name: String::new(), source };
        let root = root.as_ref();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed("make"))?;
        let path = root.canonicalize().map_err(failed("find"))?;
        let handle = File::open(&path).map_err(failed("open"))?;
        let mut shares = Shares { root: handle, path, unswept: Vec::new() };
        shares.unswept = shares.sweep()?;
        Ok(shares)
    }

    /// What could not be removed of earlier deletions when the root was opened.
    pub fn unswept(&self) -> &[ShareError] {
        &self.unswept
    }

    pub fn create_share(&self, account: &str, share: &str) -> Result<Share, ShareError> {
        check_names(account, share)?;
        let mode = Mode::from_raw_mode(0o777);
        match mkdirat(&self.root, account, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(share_io("make the account of", share, errno)),
        }
        let account = open_child(&self.root, account).map_err(|errno| share_io("open the account of", share, errno))?;
        match mkdirat(&account, share, mode) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(ShareError::ShareAlreadyExists(share.to_owned())),
            Err(errno) => return Err(share_io("make", share, errno)),
        }
        let root = open_child(&account, share).map_err(|errno| share_io("open", share, errno))?;
        Ok(Share { root })
    }

    /// The share, or `ShareNotFound`.
    pub fn share(&self, account: &str, share: &str) -> Result<Share, ShareError> {
        check_names(account, share)?;
        match open_child(&self.root, account).and_then(|account| open_child(account, share)) {
            Ok(root) => Ok(Share { root }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(ShareError::ShareNotFound(share.to_owned())),
            Err(errno) => Err(share_io("open", share, errno)),
        }
    }

    pub fn exists(&self, account: &str, share: &str) -> Result<bool, ShareError> {
        match self.share(account, share) {
            Ok(_) => Ok(true),
            Err(ShareError::ShareNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where a share lies on this machine, for mounts. Opens nothing.
    pub fn host_path(&self, account: &str, share: &str) -> Result<PathBuf, ShareError> {
        check_names(account, share)?;
        Ok(self.path.join(account).join(share))
    }

    /// In byte order; empty for an account that never had a share.
    pub fn list_shares(&self, account: &str) -> Result<Vec<ShareEntry>, ShareError> {
        check_account(account)?;
        let failed = |errno| share_io("list the shares beside", account, errno);
        let account = match open_child(&self.root, account) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let mut found = Vec::new();
        for name in names_in(&account).map_err(failed)? {
            if !is_share_name(&name) {
                continue;
            }
            // Deleted meanwhile, or not a directory: not a share.
            let Ok(share) = open_child(&account, &name) else { continue };
            let stat = Stat::of_handle(&share, &SharePath::ROOT)?;
            found.push(ShareEntry { name, modified: stat.modified, etag: stat.etag });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The share is gone as soon as it is renamed; then its tree is removed.
    pub fn delete_share(&self, account: &str, share: &str) -> Result<Removed, ShareError> {
        check_names(account, share)?;
        let account = match open_child(&self.root, account) {
            Err(Errno::NOENT) => return Err(ShareError::ShareNotFound(share.to_owned())),
            opened => opened.map_err(|errno| share_io("open the account of", share, errno))?,
        };
        match removal::rename_and_remove(&account, share) {
            Ok(left) => Ok(removed(share, left)),
            Err(Errno::NOENT) => Err(ShareError::ShareNotFound(share.to_owned())),
            Err(errno) => Err(share_io("delete", share, errno)),
        }
    }

    /// Deletes every share of an account; one that has none is no error.
    pub fn delete_account(&self, account: &str) -> Result<Removed, ShareError> {
        check_account(account)?;
        match removal::rename_and_remove(&self.root, account) {
            Ok(left) => Ok(removed(account, left)),
            Err(Errno::NOENT) => Ok(Removed { left_behind: None }),
            Err(errno) => Err(share_io("delete the account of", account, errno)),
        }
    }

    fn sweep(&self) -> Result<Vec<ShareError>, ShareError> {
        let failed = |errno| share_io("list", "", errno);
        let mut unswept = removal::sweep(&self.root).map_err(failed)?;
        for name in names_in(&self.root).map_err(failed)? {
            if is_account_name(&name)
                && let Ok(account) = open_child(&self.root, &name)
            {
                unswept.extend(removal::sweep(&account).map_err(failed)?);
            }
        }
        Ok(unswept.into_iter().map(|(name, errno)| share_io("remove", &name, errno)).collect())
    }
}

fn check_account(account: &str) -> Result<(), ShareError> {
    match is_account_name(account) {
        true => Ok(()),
        false => Err(ShareError::AccountName(account.to_owned())),
    }
}

fn check_names(account: &str, share: &str) -> Result<(), ShareError> {
    check_account(account)?;
    match is_share_name(share) {
        true => Ok(()),
        false => Err(ShareError::ShareName(share.to_owned())),
    }
}

/// Opens a checked name as a directory, not through a link.
fn open_child(parent: impl AsFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(parent.as_fd(), name, flags, Mode::empty(), resolve).map(File::from)
}

/// Names in a directory, unsorted; those that are not UTF-8 are left out, for they can be
/// neither asked for nor written into a listing.
pub(crate) fn names_in(directory: impl AsFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

fn removed(name: &str, left: Option<Errno>) -> Removed {
    Removed { left_behind: left.map(|errno| share_io("remove all of", name, errno)) }
}

fn share_io(attempt: &'static str, name: &str, errno: Errno) -> ShareError {
    ShareError::ShareIo { attempt, name: name.to_owned(), source: io::Error::from(errno) }
}

impl Share {
    /// Properties of a file or directory; a link that stays inside is followed.
    pub fn stat(&self, path: &SharePath) -> Result<Stat, ShareError> {
        let file = crate::beneath::open(&self.root, path, OFlags::PATH, Mode::empty())
            .map_err(|errno| ShareError::at("find", path, errno))?;
        Stat::of_handle(&file, path)
    }

    /// As [`Share::stat`], for a directory only.
    pub fn stat_dir(&self, path: &SharePath) -> Result<Stat, ShareError> {
        self.stat_kind(path, Kind::Directory)
    }

    /// As [`Share::stat`], for a file only.
    pub fn stat_file(&self, path: &SharePath) -> Result<Stat, ShareError> {
        self.stat_kind(path, Kind::File)
    }

    fn stat_kind(&self, path: &SharePath, kind: Kind) -> Result<Stat, ShareError> {
        let stat = self.stat(path)?;
        match stat.kind == kind {
            true => Ok(stat),
            false => Err(ShareError::WrongKind(path.clone())),
        }
    }
}
