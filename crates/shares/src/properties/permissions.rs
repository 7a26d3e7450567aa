//! Properties of accounts, and security descriptors that the files of a share refer to by key. Descriptors are in
//! `ROOT/{account}/.permissions/{share}/` and are deleted with their share. They are not enforced.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
};

use corro_base::atomic_file::AtomicFile;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use crate::{
    Properties, ShareError, Shares,
    properties::property_store,
    tree::{
        dirs::{PERMISSIONS, check_account, check_names, ensure_dir, open_child, share_io},
        removal,
    },
};

/// Azure's limit for a descriptor, in bytes.
pub const MAX_PERMISSION: usize = 64 << 10;

impl Shares {
    /// Properties of the account itself.
    pub fn account_properties(&self, account: &str) -> Result<Properties, ShareError> {
        check_account(account)?;
        match open_child(&self.common.root, account) {
            Ok(directory) => Ok(property_store::read(&self.common, &directory)),
            Err(Errno::NOENT) => Ok(Properties::default()),
            Err(errno) => Err(share_io("open the account", account, errno)),
        }
    }

    pub fn change_account_properties(
        &self,
        account: &str,
        change: impl FnOnce(&mut Properties),
    ) -> Result<(), ShareError> {
        check_account(account)?;
        let failed = |errno| share_io("open the account", account, errno);
        ensure_dir(&self.common.root, account).map_err(failed)?;
        let directory = open_child(&self.common.root, account).map_err(failed)?;
        let _lock = self.common.inode_locks.lock(&directory);
        let mut properties = property_store::read(&self.common, &directory);
        change(&mut properties);
        property_store::write(&self.common, &directory, &properties).map_err(|source| ShareError::ShareIo {
            attempt: "store the properties of the account",
            name: account.to_owned(),
            source,
        })
    }

    /// Stores a descriptor of a share under `key`, which has digits and `*`.
    pub fn store_permission(&self, account: &str, share: &str, key: &str, text: &str) -> Result<(), ShareError> {
        self.share(account, share)?;
        let failed = |errno| share_io("store a permission of", share, errno);
        let dir = self.ensure_permissions(account, share).map_err(failed)?;
        if !is_key(key) {
            return Err(failed(Errno::INVAL));
        }
        let write = || -> io::Result<()> {
            let file = AtomicFile::create_in(dir.into(), key, 0o600)?;
            file.file().write_all(text.as_bytes())?;
            file.commit_unsynced()
        };
        write().map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Descriptor with that key, if the share has one.
    pub fn permission(&self, account: &str, share: &str, key: &str) -> Result<Option<String>, ShareError> {
        self.share(account, share)?;
        let opened = match is_key(key) {
            true => open_child(&self.common.root, account)
                .and_then(|account| open_child(account, PERMISSIONS))
                .and_then(|permissions| open_child(permissions, share))
                .and_then(|dir| open_in(&dir, key, OFlags::RDONLY)),
            false => Err(Errno::NOENT),
        };
        match opened {
            Ok(file) => {
                let mut text = String::new();
                let read = file.take(MAX_PERMISSION as u64).read_to_string(&mut text);
                read.map_err(|source| ShareError::ShareIo {
                    attempt: "read a permission of",
                    name: share.to_owned(),
                    source,
                })?;
                Ok(Some(text))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(share_io("read a permission of", share, errno)),
        }
    }

    /// Descriptors of a deleted share; none is no error.
    pub(crate) fn delete_permissions(&self, account: &str, share: &str) -> Result<Option<Errno>, Errno> {
        let permissions = open_child(&self.common.root, account).and_then(|account| open_child(account, PERMISSIONS));
        match permissions.and_then(|permissions| removal::rename_and_remove(&permissions, share)) {
            Err(Errno::NOENT) => Ok(None),
            other => other,
        }
    }

    fn ensure_permissions(&self, account: &str, share: &str) -> Result<File, Errno> {
        check_names(account, share).map_err(|_| Errno::INVAL)?;
        let account = open_child(&self.common.root, account)?;
        ensure_dir(&account, PERMISSIONS)?;
        let permissions = open_child(account, PERMISSIONS)?;
        ensure_dir(&permissions, share)?;
        open_child(permissions, share)
    }
}

fn is_key(key: &str) -> bool {
    (1..64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_digit() || b == b'*')
}

fn open_in(directory: &File, name: &str, flags: OFlags) -> Result<File, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(directory.as_fd(), name, flags | OFlags::CLOEXEC, mode, resolve).map(File::from)
}
