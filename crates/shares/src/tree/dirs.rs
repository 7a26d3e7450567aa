//! Directory handles below the root of all shares: layout of an account's directory, validated names, open and list
//! without following symbolic links.

use std::{fs::File, io, os::fd::AsFd};

use rustix::{
    fs::{Dir, Mode, OFlags, ResolveFlags, mkdirat, openat2},
    io::Errno,
};

use crate::{ShareError, is_account_name, is_share_name};

/// Directory of an account's containers. No share can have a name with a dot.
pub(crate) const CONTAINERS: &str = ".containers";

/// Directory of the snapshots of an account's shares.
pub(crate) const SNAPSHOTS: &str = ".snapshots";

/// Directory of the security descriptors of an account's shares.
pub(crate) const PERMISSIONS: &str = ".permissions";

pub(crate) const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// Directory of staging files and uncommitted blocks of an account's containers.
pub(crate) const STAGING: &str = ".drafts";

pub(crate) fn check_account(account: &str) -> Result<(), ShareError> {
    match is_account_name(account) {
        true => Ok(()),
        false => Err(ShareError::AccountName(account.to_owned())),
    }
}

/// Opens a validated name as a directory, without following links.
pub(crate) fn open_child(parent: impl AsFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(parent.as_fd(), name, flags, Mode::empty(), resolve).map(File::from)
}

/// Names in a directory, unsorted. Names that are not UTF-8 are left out, because they can be neither requested nor
/// listed.
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

pub(crate) fn share_io(attempt: &'static str, name: &str, errno: Errno) -> ShareError {
    ShareError::ShareIo { attempt, name: name.to_owned(), source: io::Error::from(errno) }
}

pub(crate) fn ensure_dir(parent: &File, name: &str) -> Result<(), Errno> {
    match mkdirat(parent, name, DIR_MODE) {
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
