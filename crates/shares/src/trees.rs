//! Whole shares and whole containers of an account: making, finding, listing and deleting them. A
//! container is a tree like a share in a namespace of its own, so both may have the same name.
//! Entered by the file service and by whoever mounts one. Must never follow a symbolic link in place
//! of a tree.

use std::{fs::File, path::PathBuf, time::SystemTime};

use rustix::{
    fs::{Mode, mkdirat},
    io::Errno,
};

use crate::{
    Properties, Removed, Share, ShareError, SharePath, Shares, Stat, is_share_name, keeping, removal,
    root::{check_account, names_in, open_child, removed, share_io},
};

/// Where an account keeps its containers. No share can have a name with a dot.
pub(crate) const CONTAINERS: &str = ".containers";
/// Where it keeps the snapshots of its shares.
pub(crate) const SNAPSHOTS: &str = ".snapshots";
/// And the security descriptors that files of a share name.
pub(crate) const PERMISSIONS: &str = ".permissions";

/// A share or container in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    pub name: String,
    pub modified: SystemTime,
    pub etag: String,
    pub properties: Properties,
}

impl Shares {
    pub fn create_share(&self, account: &str, share: &str) -> Result<Share, ShareError> {
        self.create_tree(Shelf::Shares, account, share)
    }

    /// The share, or `ShareNotFound`.
    pub fn share(&self, account: &str, share: &str) -> Result<Share, ShareError> {
        self.tree(Shelf::Shares, account, share)
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
    pub fn list_shares(&self, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        self.list_trees(Shelf::Shares, account)
    }

    /// The share is gone as soon as it is renamed; then its tree is removed.
    pub fn delete_share(&self, account: &str, share: &str) -> Result<Removed, ShareError> {
        let share_tree = self.delete_tree(Shelf::Shares, account, share)?;
        match self.delete_permissions(account, share) {
            Ok(left) if share_tree.left_behind.is_none() => Ok(removed(share, left)),
            // The share is gone, and that is what was asked for.
            Ok(_) => Ok(share_tree),
            Err(errno) => Ok(removed(share, Some(errno))),
        }
    }

    pub fn create_container(&self, account: &str, container: &str) -> Result<Share, ShareError> {
        self.create_tree(Shelf::Containers, account, container)
    }

    /// The container, or `ContainerNotFound`. Its tree is used as a share's is.
    pub fn container(&self, account: &str, container: &str) -> Result<Share, ShareError> {
        self.tree(Shelf::Containers, account, container)
    }

    /// Where a container lies on this machine, for mounts. Opens nothing.
    pub fn container_host_path(&self, account: &str, container: &str) -> Result<PathBuf, ShareError> {
        check_names(account, container)?;
        Ok(self.path.join(account).join(CONTAINERS).join(container))
    }

    /// In byte order; empty for an account that never had a container.
    pub fn list_containers(&self, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        self.list_trees(Shelf::Containers, account)
    }

    /// As [`Shares::delete_share`].
    pub fn delete_container(&self, account: &str, container: &str) -> Result<Removed, ShareError> {
        let removed = self.delete_tree(Shelf::Containers, account, container)?;
        self.delete_drafts(account, container);
        Ok(removed)
    }

    fn create_tree(&self, shelf: Shelf, account: &str, name: &str) -> Result<Share, ShareError> {
        check_names(account, name)?;
        let shelf_dir =
            self.make_shelf(shelf, account).map_err(|errno| share_io("make the account of", name, errno))?;
        match mkdirat(&shelf_dir, name, MODE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(shelf.already_exists(name)),
            Err(errno) => return Err(share_io("make", name, errno)),
        }
        let root = open_child(&shelf_dir, name).map_err(|errno| share_io("open", name, errno))?;
        Ok(Share { root, common: self.common.clone() })
    }

    fn tree(&self, shelf: Shelf, account: &str, name: &str) -> Result<Share, ShareError> {
        check_names(account, name)?;
        match self.open_shelf(shelf, account).and_then(|shelf_dir| open_child(shelf_dir, name)) {
            Ok(root) => Ok(Share { root, common: self.common.clone() }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(shelf.not_found(name)),
            Err(errno) => Err(share_io("open", name, errno)),
        }
    }

    fn list_trees(&self, shelf: Shelf, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        check_account(account)?;
        let failed = |errno| share_io("list the shares beside", account, errno);
        let shelf_dir = match self.open_shelf(shelf, account) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let mut found = Vec::new();
        for name in names_in(&shelf_dir).map_err(failed)? {
            if !is_share_name(&name) {
                continue;
            }
            // Deleted meanwhile, or not a directory: not a share.
            let Ok(share) = open_child(&shelf_dir, &name) else { continue };
            let stat = Stat::of_handle(&share, &SharePath::ROOT)?;
            let properties = keeping::read(&self.common, &share);
            found.push(TreeEntry { name, modified: stat.modified, etag: stat.etag, properties });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn delete_tree(&self, shelf: Shelf, account: &str, name: &str) -> Result<Removed, ShareError> {
        check_names(account, name)?;
        let shelf_dir = match self.open_shelf(shelf, account) {
            Err(Errno::NOENT) => return Err(shelf.not_found(name)),
            opened => opened.map_err(|errno| share_io("open the account of", name, errno))?,
        };
        match removal::rename_and_remove(&shelf_dir, name) {
            Ok(left) => Ok(removed(name, left)),
            Err(Errno::NOENT) => Err(shelf.not_found(name)),
            Err(errno) => Err(share_io("delete", name, errno)),
        }
    }

    fn open_shelf(&self, shelf: Shelf, account: &str) -> Result<File, Errno> {
        let account = open_child(&self.common.root, account)?;
        match shelf {
            Shelf::Shares => Ok(account),
            Shelf::Containers => open_child(account, CONTAINERS),
        }
    }

    fn make_shelf(&self, shelf: Shelf, account: &str) -> Result<File, Errno> {
        ensure_dir(&self.common.root, account)?;
        let account = open_child(&self.common.root, account)?;
        match shelf {
            Shelf::Shares => Ok(account),
            Shelf::Containers => {
                ensure_dir(&account, CONTAINERS)?;
                open_child(account, CONTAINERS)
            }
        }
    }
}

const MODE: Mode = Mode::from_raw_mode(0o777);

/// The two namespaces of an account.
#[derive(Debug, Clone, Copy)]
enum Shelf {
    Shares,
    Containers,
}

impl Shelf {
    fn not_found(self, name: &str) -> ShareError {
        match self {
            Shelf::Shares => ShareError::ShareNotFound(name.to_owned()),
            Shelf::Containers => ShareError::ContainerNotFound(name.to_owned()),
        }
    }

    fn already_exists(self, name: &str) -> ShareError {
        match self {
            Shelf::Shares => ShareError::ShareAlreadyExists(name.to_owned()),
            Shelf::Containers => ShareError::ContainerAlreadyExists(name.to_owned()),
        }
    }
}

pub(crate) fn ensure_dir(parent: &File, name: &str) -> Result<(), Errno> {
    match mkdirat(parent, name, MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn check_names(account: &str, name: &str) -> Result<(), ShareError> {
    check_account(account)?;
    match is_share_name(name) {
        true => Ok(()),
        false => Err(ShareError::ShareName(name.to_owned())),
    }
}
