//! The cheapest of mounts: a symbolic link to a directory of this machine. Entered by `mounts` only.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, readlinkat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::{MountError, split};
use crate::fs::dirfd;
use crate::storage::dir_reuse::Spare;

pub fn make(root: &OwnedFd, source: &Path, relative: &str, spare: &Spare) -> Result<(), MountError> {
    let (parent, name) = split(relative)?.ok_or(MountError::NoPlace)?;
    let parent = dirfd::make_beneath(root, &parent).map_err(MountError::Place)?;
    let place = |errno: Errno| MountError::Place(errno.into());
    if spare.take_link(source, &parent, &name) {
        return Ok(());
    }
    match symlinkat(source, &parent, &*name) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match readlinkat(&parent, &*name, Vec::new()) {
            Ok(target) if target.as_bytes() == source.as_os_str().as_encoded_bytes() => Ok(()),
            Ok(_) | Err(Errno::INVAL) => Err(MountError::Occupied),
            Err(errno) => Err(place(errno)),
        },
        Err(errno) => Err(place(errno)),
    }
}

/// True when there was one.
pub fn remove(parent: &OwnedFd, name: &str, spare: &Spare) -> io::Result<bool> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            if !spare.keep_link(parent, name) {
                unlinkat(parent, name, AtFlags::empty())?;
            }
            Ok(true)
        }
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
