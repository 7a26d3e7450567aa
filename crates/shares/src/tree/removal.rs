//! Deletes whole trees. A tree is first renamed to a hidden name in the same directory, which makes it invisible
//! atomically; then it is removed through directory handles. Never follows a symbolic link and never crosses into
//! another mounted file system.

use std::{
    ffi::CStr,
    fs::File,
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat_with, unlinkat},
    io::Errno,
};

use crate::tree::dirs::names_in;

const TRASH: &str = ".trash-";

/// Renames `name` away and removes it. `Err`: nothing changed. `Ok(Some(_))`: it is invisible, but not completely
/// removed.
pub(crate) fn rename_and_remove(parent: &File, name: &str) -> Result<Option<Errno>, Errno> {
    let trash = move_to_temporary_name(parent, name, parent)?;
    Ok(remove_tree(parent, &trash).err())
}

/// Removes leftovers of earlier deletions. Returns those that could not be removed.
pub(crate) fn remove_leftovers(directory: &File) -> Result<Vec<(String, Errno)>, Errno> {
    let mut leftovers = Vec::new();
    for name in names_in(directory)? {
        if name.starts_with(TRASH)
            && let Err(errno) = remove_tree(directory, &name)
        {
            leftovers.push((name, errno));
        }
    }
    Ok(leftovers)
}

/// Removes a tree of any depth with at most three open handles: nested directories are moved up to the top, where the
/// next pass finds them. Safe against a concurrent removal by another process.
fn remove_tree(parent: &File, name: &str) -> Result<(), Errno> {
    let top = match open_dir(parent, name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return ignore_missing(unlinkat(parent, name, AtFlags::empty())),
        Err(errno) => return Err(errno),
    };
    loop {
        let mut failure = None;
        let mut removed = 0u64;
        for_each_entry(&top, |entry| {
            match remove_entry(&top, entry) {
                Ok(()) => removed += 1,
                Err(errno) => failure = Some(errno),
            };
        })?;
        match failure {
            None if removed == 0 => break,
            Some(errno) if removed == 0 => return Err(errno),
            _ => {}
        }
    }
    ignore_missing(unlinkat(parent, name, AtFlags::REMOVEDIR))
}

/// Removes one entry of the top directory; its subdirectories are moved up.
fn remove_entry(top: &File, name: &CStr) -> Result<(), Errno> {
    match unlinkat(top, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return ignore_missing(other),
    }
    let directory = match open_dir(top, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut failure = None;
    for_each_entry(&directory, |entry| {
        let result = match unlinkat(&directory, entry, AtFlags::empty()) {
            Err(Errno::ISDIR) => move_up(&directory, entry, top),
            other => other,
        };
        failure = ignore_missing(result).err().or(failure);
    })?;
    match failure {
        Some(errno) => Err(errno),
        None => ignore_missing(unlinkat(top, name, AtFlags::REMOVEDIR)),
    }
}

fn move_up(from: &File, name: &CStr, top: &File) -> Result<(), Errno> {
    match move_to_temporary_name(from, name, top) {
        // A directory must be writable itself to change its parent.
        Err(Errno::ACCESS) => {
            open_dir(from, name)?;
            move_to_temporary_name(from, name, top).map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

fn move_to_temporary_name(from: &File, name: impl rustix::path::Arg + Copy, to: &File) -> Result<String, Errno> {
    loop {
        let fresh = temporary_name();
        match renameat_with(from, name, to, fresh.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(fresh),
            Err(Errno::EXIST) => {} // from an earlier process with the same pid
            Err(errno) => return Err(errno),
        }
    }
}

/// Name for something that must not survive a crash: [`remove_leftovers`] removes it.
pub(crate) fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{TRASH}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Opens a directory and makes it writable for its owner: read-only package caches in job output are not.
fn open_dir(parent: &File, name: impl rustix::path::Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let directory = File::from(openat2(parent.as_fd(), name, flags, Mode::empty(), resolve)?);
    if let Ok(metadata) = directory.metadata()
        && metadata.mode() & 0o700 != 0o700
    {
        // Fails for a directory of another user; then the removal fails too, and is reported.
        let _ = directory.set_permissions(PermissionsExt::from_mode(0o700));
    }
    Ok(directory)
}

fn for_each_entry(directory: &File, mut visit: impl FnMut(&CStr)) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            visit(entry.file_name());
        }
    }
    Ok(())
}

fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
