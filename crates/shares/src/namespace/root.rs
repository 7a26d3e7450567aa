//! The root that holds all accounts, and handles on single shares and containers. Never follows a symbolic link in
//! place of an account.

use std::{
    fs::{DirBuilder, File},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::SystemTime,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    Kind, PropertyStorage, ShareError, SharePath, Stat,
    content::staging::remove_stale_blocks,
    is_account_name,
    properties::property_store,
    shared_state::common::Common,
    tree::{
        beneath,
        dirs::{CONTAINERS, PERMISSIONS, SNAPSHOTS, STAGING, check_account, names_in, open_child, share_io},
        removal,
    },
};

/// All share trees of a server.
#[derive(Debug)]
pub struct Shares {
    pub(crate) common: Arc<Common>,
    pub(crate) path: PathBuf,
    leftovers: Vec<ShareError>,
}

/// Handle on one share or container; it stays valid if the tree is renamed or deleted.
#[derive(Debug)]
pub struct Share {
    pub(crate) root: File,
    pub(crate) common: Arc<Common>,
}

/// Result of deleting a share or account, which no caller can see any more.
#[derive(Debug)]
#[must_use]
pub struct Removal {
    /// Error that left some of it on disk. The removal is retried when the root is opened next.
    pub leftover: Option<ShareError>,
}

impl Removal {
    pub(crate) fn new(name: &str, left: Option<Errno>) -> Self {
        Removal { leftover: left.map(|errno| share_io("remove all of", name, errno)) }
    }
}

impl Shares {
    /// Opens the root. Creates it (mode 0700) if missing, and removes leftovers of interrupted deletions.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, ShareError> {
        Self::open_with(root, PropertyStorage::ExtendedAttributes)
    }

    /// Like [`Shares::open`], with the current time for the age of uncommitted blocks. `now` must not be ahead of the
    /// real time.
    pub fn open_at(root: impl AsRef<Path>, now: SystemTime) -> Result<Self, ShareError> {
        Self::open_with_storage(root, PropertyStorage::ExtendedAttributes, now)
    }

    /// Like [`Shares::open`], with a choice of the storage of properties.
    pub fn open_with(root: impl AsRef<Path>, property_storage: PropertyStorage) -> Result<Self, ShareError> {
        Self::open_with_storage(root, property_storage, SystemTime::now())
    }

    fn open_with_storage(
        root: impl AsRef<Path>,
        property_storage: PropertyStorage,
        now: SystemTime,
    ) -> Result<Self, ShareError> {
        let failed = |attempt| move |source| ShareError::ShareIo { attempt, name: String::new(), source };
        let root = root.as_ref();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed("create"))?;
        let path = root.canonicalize().map_err(failed("find"))?;
        let handle = File::open(&path).map_err(failed("open"))?;
        let has_sidecars = AtomicBool::new(property_store::has_sidecars(&handle));
        let (usage_cache, inode_locks) = Default::default();
        let common = Arc::new(Common { root: handle, property_storage, has_sidecars, usage_cache, inode_locks });
        let mut shares = Shares { common, path, leftovers: Vec::new() };
        shares.leftovers = shares.remove_leftovers(now)?;
        Ok(shares)
    }

    /// Leftovers that could not be removed when the root was opened.
    pub fn leftovers(&self) -> &[ShareError] {
        &self.leftovers
    }

    /// Deletes every share and container of an account; none is no error.
    pub fn delete_account(&self, account: &str) -> Result<Removal, ShareError> {
        check_account(account)?;
        match removal::rename_and_remove(&self.common.root, account) {
            Ok(left) => Ok(Removal::new(account, left)),
            Err(Errno::NOENT) => Ok(Removal { leftover: None }),
            Err(errno) => Err(share_io("delete the account of", account, errno)),
        }
    }

    fn remove_leftovers(&self, now: SystemTime) -> Result<Vec<ShareError>, ShareError> {
        let failed = |errno| share_io("list", "", errno);
        let mut leftovers = removal::remove_leftovers(&self.common.root).map_err(failed)?;
        for name in names_in(&self.common.root).map_err(failed)? {
            if is_account_name(&name)
                && let Ok(account) = open_child(&self.common.root, &name)
            {
                leftovers.extend(removal::remove_leftovers(&account).map_err(failed)?);
                if let Ok(containers) = open_child(&account, CONTAINERS) {
                    leftovers.extend(removal::remove_leftovers(&containers).map_err(failed)?);
                }
                for dir in [SNAPSHOTS, PERMISSIONS, STAGING] {
                    let Ok(dir) = open_child(&account, dir) else { continue };
                    leftovers.extend(removal::remove_leftovers(&dir).map_err(failed)?);
                    for share in names_in(&dir).map_err(failed)? {
                        if let Ok(share_dir) = open_child(&dir, &share) {
                            leftovers.extend(removal::remove_leftovers(&share_dir).map_err(failed)?);
                            remove_stale_blocks(&share_dir, now).map_err(failed)?;
                        }
                    }
                }
            }
        }
        Ok(leftovers.into_iter().map(|(name, errno)| share_io("remove", &name, errno)).collect())
    }
}

impl Share {
    /// Attributes of a file or directory; a link inside the share is followed.
    pub fn stat(&self, path: &SharePath) -> Result<Stat, ShareError> {
        let file = beneath::open(&self.root, path, OFlags::PATH, Mode::empty())
            .map_err(|errno| ShareError::at("find", path, errno))?;
        Stat::from_file(&file, path)
    }

    /// Like [`Share::stat`], for a directory only.
    pub fn stat_dir(&self, path: &SharePath) -> Result<Stat, ShareError> {
        self.stat_kind(path, Kind::Directory)
    }

    /// Like [`Share::stat`], for a file only.
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
