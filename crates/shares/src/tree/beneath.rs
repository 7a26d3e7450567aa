//! Opens a [`SharePath`] beneath a directory handle. The only way to a file. The kernel resolves the path (`openat2`
//! with `RESOLVE_BENEATH`), so neither a symbolic link nor a directory moved during the resolution leads out of the
//! share. Links that stay inside work. Never falls back to another way of opening.

use std::{fs::File, os::fd::AsFd};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use crate::{Kind, ShareError, SharePath, Stat};

/// Opens `path` beneath `root`. `mode` matters only with `OFlags::CREATE`.
pub(crate) fn open(root: impl AsFd, path: &SharePath, flags: OFlags, mode: Mode) -> Result<File, Errno> {
    open_with(root, path, flags, mode, RESOLVE)
}

/// Opens the entry itself for `fstat`: a symbolic link in the last component is not followed.
pub(crate) fn open_entry(root: impl AsFd, path: &SharePath) -> Result<File, Errno> {
    open(root, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
}

fn open_with(
    root: impl AsFd,
    path: &SharePath,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<File, Errno> {
    let mut tries = 0;
    loop {
        match openat2(root.as_fd(), relative(path), careful(flags), mode, resolve) {
            Ok(fd) => return Ok(File::from(fd)),
            Err(Errno::INTR) => {}
            // A rename raced with the resolution of `..` in a link. The kernel cannot guarantee the result and asks for
            // a retry.
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            Err(errno) => return Err(errno),
        }
    }
}

/// Opens a file by a path without `..`, without following any link, since a link could lead to another share. `None`
/// also if the kernel would have to read from disk.
pub(crate) fn open_nonblocking(root: impl AsFd, path: &str) -> Option<File> {
    openat2(root.as_fd(), path, careful(OFlags::RDONLY), Mode::empty(), RESOLVE_NONBLOCKING).ok().map(File::from)
}

/// Like [`open_nonblocking`], for the attributes of a directory.
pub(crate) fn open_dir_nonblocking(root: impl AsFd, path: &str) -> Option<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(root.as_fd(), path, flags, Mode::empty(), RESOLVE_NONBLOCKING).ok().map(File::from)
}

const RESOLVE_NONBLOCKING: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::CACHED);
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const MAX_TRIES: u32 = 128;

fn relative(path: &SharePath) -> &str {
    if path.is_root() { "." } else { path.as_str() }
}

/// Without `O_NONBLOCK`, opening a FIFO that a job left in the share would wait for its other end.
fn careful(flags: OFlags) -> OFlags {
    match flags.contains(OFlags::PATH) {
        true => flags | OFlags::CLOEXEC, // openat2 rejects other flags with O_PATH
        false => flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
    }
}

/// Opens a directory for listing.
pub(crate) fn open_dir(root: impl AsFd, path: &SharePath) -> Result<File, ShareError> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| ShareError::at("open the directory", path, errno))
}

/// Opens a directory for a walk, without following links. A directory that was replaced by a link during the walk is
/// not found.
pub(crate) fn open_real_dir(root: impl AsFd, path: &SharePath) -> Result<File, ShareError> {
    let resolve = RESOLVE.union(ResolveFlags::NO_SYMLINKS);
    open_with(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), resolve).map_err(|errno| match errno {
        Errno::LOOP => ShareError::NotFound(path.clone()),
        errno => ShareError::at("open the directory", path, errno),
    })
}

/// The parent directory of `path`, and the last component.
pub(crate) fn open_parent(root: impl AsFd, path: &SharePath) -> Result<(File, &str), ShareError> {
    let (parent, name) = path.split().ok_or(ShareError::Root)?;
    // `O_PATH`: creating and removing entries needs no read permission on the directory.
    let parent = open(root, &parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| ShareError::at("open the directory of", path, errno))?;
    Ok((parent, name))
}

/// Opens a regular file. Everything else is rejected before any byte is read or written.
pub(crate) fn open_file(root: impl AsFd, path: &SharePath, flags: OFlags) -> Result<(File, Stat), ShareError> {
    if path.is_root() {
        return Err(ShareError::WrongKind(SharePath::ROOT));
    }
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::from_raw_mode(0o666),
        false => Mode::empty(),
    };
    let file = open(root, path, flags, mode).map_err(|errno| ShareError::at("open the file", path, errno))?;
    let stat = Stat::from_file(&file, path)?;
    match stat.kind {
        Kind::File => Ok((file, stat)),
        Kind::Directory | Kind::Link => Err(ShareError::WrongKind(path.clone())),
    }
}
