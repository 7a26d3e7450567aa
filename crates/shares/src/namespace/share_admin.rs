//! Creates, opens, lists and deletes whole shares and containers. Containers are trees like shares in a namespace of
//! their own, so a share and a container can have the same name. Never follows a symbolic link in place of a tree.

use std::{fs::File, path::PathBuf, time::SystemTime};

use rustix::{fs::mkdirat, io::Errno};

use crate::{
    Properties, Removal, Share, ShareError, SharePath, Shares, Stat, is_share_name,
    properties::property_store,
    tree::{
        dirs::{CONTAINERS, DIR_MODE, check_account, check_names, ensure_dir, names_in, open_child, share_io},
        removal,
    },
};

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
        self.create_tree(Namespace::Shares, account, share)
    }

    /// The share, or `ShareNotFound`.
    pub fn share(&self, account: &str, share: &str) -> Result<Share, ShareError> {
        self.tree(Namespace::Shares, account, share)
    }

    pub fn exists(&self, account: &str, share: &str) -> Result<bool, ShareError> {
        match self.share(account, share) {
            Ok(_) => Ok(true),
            Err(ShareError::ShareNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Path of a share on this host, for mounts. Does not check that it exists.
    pub fn host_path(&self, account: &str, share: &str) -> Result<PathBuf, ShareError> {
        check_names(account, share)?;
        Ok(self.path.join(account).join(share))
    }

    /// In byte order; empty for an account without shares.
    pub fn list_shares(&self, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        self.list_trees(Namespace::Shares, account)
    }

    /// The share is invisible after a rename; then its tree is removed.
    pub fn delete_share(&self, account: &str, share: &str) -> Result<Removal, ShareError> {
        let share_tree = self.delete_tree(Namespace::Shares, account, share)?;
        match self.delete_permissions(account, share) {
            Ok(left) if share_tree.leftover.is_none() => Ok(Removal::new(share, left)),
            // The share is deleted; leftovers are already reported.
            Ok(_) => Ok(share_tree),
            Err(errno) => Ok(Removal::new(share, Some(errno))),
        }
    }

    pub fn create_container(&self, account: &str, container: &str) -> Result<Share, ShareError> {
        self.create_tree(Namespace::Containers, account, container)
    }

    /// The container, or `ContainerNotFound`. Used like a share.
    pub fn container(&self, account: &str, container: &str) -> Result<Share, ShareError> {
        self.tree(Namespace::Containers, account, container)
    }

    /// Path of a container on this host, for mounts. Does not check that it exists.
    pub fn container_host_path(&self, account: &str, container: &str) -> Result<PathBuf, ShareError> {
        check_names(account, container)?;
        Ok(self.path.join(account).join(CONTAINERS).join(container))
    }

    /// In byte order; empty for an account without containers.
    pub fn list_containers(&self, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        self.list_trees(Namespace::Containers, account)
    }

    /// Like [`Shares::delete_share`].
    pub fn delete_container(&self, account: &str, container: &str) -> Result<Removal, ShareError> {
        let removed = self.delete_tree(Namespace::Containers, account, container)?;
        self.delete_staging(account, container);
        Ok(removed)
    }

    fn create_tree(&self, namespace: Namespace, account: &str, name: &str) -> Result<Share, ShareError> {
        check_names(account, name)?;
        let namespace_dir = self
            .ensure_namespace(namespace, account)
            .map_err(|errno| share_io("create the account of", name, errno))?;
        match mkdirat(&namespace_dir, name, DIR_MODE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(namespace.already_exists(name)),
            Err(errno) => return Err(share_io("create", name, errno)),
        }
        let root = open_child(&namespace_dir, name).map_err(|errno| share_io("open", name, errno))?;
        Ok(Share { root, common: self.common.clone() })
    }

    fn tree(&self, namespace: Namespace, account: &str, name: &str) -> Result<Share, ShareError> {
        check_names(account, name)?;
        match self.open_namespace(namespace, account).and_then(|namespace_dir| open_child(namespace_dir, name)) {
            Ok(root) => Ok(Share { root, common: self.common.clone() }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(namespace.not_found(name)),
            Err(errno) => Err(share_io("open", name, errno)),
        }
    }

    fn list_trees(&self, namespace: Namespace, account: &str) -> Result<Vec<TreeEntry>, ShareError> {
        check_account(account)?;
        let failed = |errno| share_io("list the shares of the account", account, errno);
        let namespace_dir = match self.open_namespace(namespace, account) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let mut found = Vec::new();
        for name in names_in(&namespace_dir).map_err(failed)? {
            if !is_share_name(&name) {
                continue;
            }
            // Deleted meanwhile, or not a directory.
            let Ok(share) = open_child(&namespace_dir, &name) else { continue };
            let stat = Stat::from_file(&share, &SharePath::ROOT)?;
            let properties = property_store::read(&self.common, &share);
            found.push(TreeEntry { name, modified: stat.modified, etag: stat.etag, properties });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn delete_tree(&self, namespace: Namespace, account: &str, name: &str) -> Result<Removal, ShareError> {
        check_names(account, name)?;
        let namespace_dir = match self.open_namespace(namespace, account) {
            Err(Errno::NOENT) => return Err(namespace.not_found(name)),
            opened => opened.map_err(|errno| share_io("open the account of", name, errno))?,
        };
        match removal::rename_and_remove(&namespace_dir, name) {
            Ok(left) => Ok(Removal::new(name, left)),
            Err(Errno::NOENT) => Err(namespace.not_found(name)),
            Err(errno) => Err(share_io("delete", name, errno)),
        }
    }

    fn open_namespace(&self, namespace: Namespace, account: &str) -> Result<File, Errno> {
        let account = open_child(&self.common.root, account)?;
        match namespace {
            Namespace::Shares => Ok(account),
            Namespace::Containers => open_child(account, CONTAINERS),
        }
    }

    fn ensure_namespace(&self, namespace: Namespace, account: &str) -> Result<File, Errno> {
        ensure_dir(&self.common.root, account)?;
        let account = open_child(&self.common.root, account)?;
        match namespace {
            Namespace::Shares => Ok(account),
            Namespace::Containers => {
                ensure_dir(&account, CONTAINERS)?;
                open_child(account, CONTAINERS)
            }
        }
    }
}

/// The two namespaces of an account.
#[derive(Debug, Clone, Copy)]
enum Namespace {
    Shares,
    Containers,
}

impl Namespace {
    fn not_found(self, name: &str) -> ShareError {
        match self {
            Namespace::Shares => ShareError::ShareNotFound(name.to_owned()),
            Namespace::Containers => ShareError::ContainerNotFound(name.to_owned()),
        }
    }

    fn already_exists(self, name: &str) -> ShareError {
        match self {
            Namespace::Shares => ShareError::ShareAlreadyExists(name.to_owned()),
            Namespace::Containers => ShareError::ContainerAlreadyExists(name.to_owned()),
        }
    }
}
