//! The root that holds all accounts, and the handle on one share or container. Entered by everything
//! that touches one, through `trees`. Must never follow a symbolic link in place of an account.

use std::{
    fs::{DirBuilder, File},
    io,
    os::{fd::AsFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::SystemTime,
};

use rustix::{
    fs::{Dir, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use crate::{
    Keeping, Kind, ShareError, SharePath, Stat,
    drafts::{DRAFTS, sweep_blocks},
    is_account_name, keeping, removal,
    trees::{CONTAINERS, PERMISSIONS, SNAPSHOTS},
    turns::Turns,
    usage::Measured,
};

/// All share trees of a server.
#[derive(Debug)]
pub struct Shares {
    pub(crate) common: Arc<Common>,
    pub(crate) path: PathBuf,
    unswept: Vec<ShareError>,
}

/// A handle on one share or container; it stays on that tree even if that is renamed or deleted.
#[derive(Debug)]
pub struct Share {
    pub(crate) root: File,
    pub(crate) common: Arc<Common>,
}

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Common {
    /// The directory that holds the accounts.
    pub root: File,
    pub keeping: Keeping,
    /// Whether anything was ever kept beside the accounts. Only ever gains.
    pub has_sidecars: AtomicBool,
    pub measured: Measured,
    pub turns: Turns,
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
        Self::open_with(root, Keeping::Attributes)
    }

    /// As [`Shares::open`], by a clock that is known to be no further ahead than `now`: blocks of blobs that were never
    /// completed are removed by their age.
    pub fn open_at(root: impl AsRef<Path>, now: SystemTime) -> Result<Self, ShareError> {
        Self::open_keeping(root, Keeping::Attributes, now)
    }

    /// As [`Shares::open`], with a choice where properties are kept.
    pub fn open_with(root: impl AsRef<Path>, keeping: Keeping) -> Result<Self, ShareError> {
        Self::open_keeping(root, keeping, SystemTime::now())
    }

    fn open_keeping(root: impl AsRef<Path>, keeping: Keeping, now: SystemTime) -> Result<Self, ShareError> {
        let failed = |attempt| move |source| ShareError::ShareIo { attempt, name: String::new(), source };
        let root = root.as_ref();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed("make"))?;
        let path = root.canonicalize().map_err(failed("find"))?;
        let handle = File::open(&path).map_err(failed("open"))?;
        let has_sidecars = AtomicBool::new(keeping::has_sidecars(&handle));
        let (measured, turns) = Default::default();
        let common = Arc::new(Common { root: handle, keeping, has_sidecars, measured, turns });
        let mut shares = Shares { common, path, unswept: Vec::new() };
        shares.unswept = shares.sweep(now)?;
        Ok(shares)
    }

    /// What could not be removed of earlier deletions when the root was opened.
    pub fn unswept(&self) -> &[ShareError] {
        &self.unswept
    }

    /// Deletes every share and container of an account; one that has none is no error.
    pub fn delete_account(&self, account: &str) -> Result<Removed, ShareError> {
        check_account(account)?;
        match removal::rename_and_remove(&self.common.root, account) {
            Ok(left) => Ok(removed(account, left)),
            Err(Errno::NOENT) => Ok(Removed { left_behind: None }),
            Err(errno) => Err(share_io("delete the account of", account, errno)),
        }
    }

    fn sweep(&self, now: SystemTime) -> Result<Vec<ShareError>, ShareError> {
        let failed = |errno| share_io("list", "", errno);
        let mut unswept = removal::sweep(&self.common.root).map_err(failed)?;
        for name in names_in(&self.common.root).map_err(failed)? {
            if is_account_name(&name)
                && let Ok(account) = open_child(&self.common.root, &name)
            {
                unswept.extend(removal::sweep(&account).map_err(failed)?);
                if let Ok(containers) = open_child(&account, CONTAINERS) {
                    unswept.extend(removal::sweep(&containers).map_err(failed)?);
                }
                for shelf in [SNAPSHOTS, PERMISSIONS, DRAFTS] {
                    let Ok(shelf) = open_child(&account, shelf) else { continue };
                    unswept.extend(removal::sweep(&shelf).map_err(failed)?);
                    for share in names_in(&shelf).map_err(failed)? {
                        if let Ok(of_share) = open_child(&shelf, &share) {
                            unswept.extend(removal::sweep(&of_share).map_err(failed)?);
                            sweep_blocks(&of_share, now).map_err(failed)?;
                        }
                    }
                }
            }
        }
        Ok(unswept.into_iter().map(|(name, errno)| share_io("remove", &name, errno)).collect())
    }
}

pub(crate) fn check_account(account: &str) -> Result<(), ShareError> {
    match is_account_name(account) {
        true => Ok(()),
        false => Err(ShareError::AccountName(account.to_owned())),
    }
}

/// Opens a checked name as a directory, not through a link.
pub(crate) fn open_child(parent: impl AsFd, name: &str) -> Result<File, Errno> {
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

pub(crate) fn removed(name: &str, left: Option<Errno>) -> Removed {
    Removed { left_behind: left.map(|errno| share_io("remove all of", name, errno)) }
}

pub(crate) fn share_io(attempt: &'static str, name: &str, errno: Errno) -> ShareError {
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
