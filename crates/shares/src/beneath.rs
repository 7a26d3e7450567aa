//! The one way from a [`SharePath`] to a file handle. The kernel walks the path beneath the
//! share's directory (`openat2`), so neither a symbolic link nor a directory that is moved away
//! in the middle of the walk leads out. Links that stay inside work. Must never fall back to
//! another way of opening.

use std::{fs::File, os::fd::AsFd};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use crate::{Kind, ShareError, SharePath, Stat};

/// Opens `path` beneath `root`. `mode` only matters with `OFlags::CREATE`.
pub(crate) fn open(root: impl AsFd, path: &SharePath, flags: OFlags, mode: Mode) -> Result<File, Errno> {
    open_with(root, path, flags, mode, RESOLVE)
}

/// Opens what lies at `path` itself, to be asked about: a link in the last component is not followed.
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
            // Something was renamed during a walk that went through `..` of a link: the kernel
            // cannot vouch for it and asks to try again.
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            Err(errno) => return Err(errno),
        }
    }
}

/// A file, from a path that holds no `..`. Through no link at all, for one could lead to another share. `None` as well when the
/// kernel would have to ask the disk about anything on the way.
pub(crate) fn open_nonblocking(root: impl AsFd, path: &str) -> Option<File> {
    openat2(root.as_fd(), path, careful(OFlags::RDONLY), Mode::empty(), RESOLVE_NONBLOCKING).ok().map(File::from)
}

/// A directory to be asked about, likewise.
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

/// Without NONBLOCK, opening a pipe that a job left in the share would wait for its other end.
fn careful(flags: OFlags) -> OFlags {
    match flags.contains(OFlags::PATH) {
        true => flags | OFlags::CLOEXEC, // openat2 refuses the combination
        false => flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
    }
}

/// Opens a directory to be list_entry.
pub(crate) fn open_dir(root: impl AsFd, path: &SharePath) -> Result<File, ShareError> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| ShareError::at("open the directory", path, errno))
}

/// Opens a directory to be list_entry by a walk: one that is reached through no link. A directory that was replaced by a link since the walk
/// came across its name is not found.
pub(crate) fn open_real_dir(root: impl AsFd, path: &SharePath) -> Result<File, ShareError> {
    let resolve = RESOLVE.union(ResolveFlags::NO_SYMLINKS);
    open_with(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), resolve).map_err(|errno| match errno {
        Errno::LOOP => ShareError::NotFound(path.clone()),
        errno => ShareError::at("open the directory", path, errno),
    })
}

/// The directory that holds `path`, opened, and the last name.
pub(crate) fn open_parent(root: impl AsFd, path: &SharePath) -> Result<(File, &str), ShareError> {
    let (parent, name) = path.split().ok_or(ShareError::Root)?;
    // Only a place to stand on: making and removing names needs no right to read the others.
    let parent = open(root, &parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| ShareError::at("open the directory of", path, errno))?;
    Ok((parent, name))
}

/// Opens a regular file; anything else is refused before a byte of it is touched.
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
