//! Volumes that are symlinks to directories of this machine: the cheapest form of a mount.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, readlinkat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::{MountError, split};
use crate::fs::dirfd;
use crate::storage::dir_reuse::DirReuse;

/// Creates the symlink to `source`, or takes a stored one. Idempotent.
pub fn make(root: &OwnedFd, source: &Path, relative: &str, dir_reuse: &DirReuse) -> Result<(), MountError> {
    let (parent, name) = split(relative)?.ok_or(MountError::EmptyPath)?;
    let parent = dirfd::make_beneath(root, &parent).map_err(MountError::MountPoint)?;
    let mount_point_error = |errno: Errno| MountError::MountPoint(errno.into());
    if dir_reuse.reuse_link(source, &parent, &name) {
        return Ok(());
    }
    match symlinkat(source, &parent, &*name) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match readlinkat(&parent, &*name, Vec::new()) {
            Ok(target) if target.as_bytes() == source.as_os_str().as_encoded_bytes() => Ok(()),
            Ok(_) | Err(Errno::INVAL) => Err(MountError::Occupied),
            Err(errno) => Err(mount_point_error(errno)),
        },
        Err(errno) => Err(mount_point_error(errno)),
    }
}

/// Removes the symlink; true if there was one.
pub fn remove(parent: &OwnedFd, name: &str, dir_reuse: &DirReuse) -> io::Result<bool> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
            if !dir_reuse.store_link(parent, name) {
                unlinkat(parent, name, AtFlags::empty())?;
            }
            Ok(true)
        }
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
