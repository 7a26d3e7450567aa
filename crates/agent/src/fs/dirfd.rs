//! File operations relative to directory descriptors: open, create and remove below one, never through a symbolic link
//! and never into another file system. A job may leave any link and mount in its directories; their targets stay
//! untouched.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::fs::{fchmod, fstat, mkdirat, open, openat2, renameat_with, unlinkat};
use rustix::io::Errno;

/// Removes a file, a link or a directory tree. No error if it does not exist.
pub fn remove(parent: impl AsFd, name: &str) -> io::Result<()> {
    let parent = parent.as_fd();
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return Ok(unless_missing(other)?),
    }
    let top = open_for_removal(parent, name)?;
    empty(&top)?;
    Ok(unless_missing(unlinkat(parent, name, AtFlags::REMOVEDIR))?)
}

/// Removes everything in a directory. Uses few descriptors however deep the tree is: directories two levels down are
/// renamed into `top`, where the next round removes them.
pub fn empty(top: &OwnedFd) -> io::Result<()> {
    loop {
        let (mut n_removed, mut failure) = (0, None);
        for name in names(top)? {
            match remove_level(top, &name) {
                Ok(()) => n_removed += 1,
                Err(errno) => failure = Some(errno),
            }
        }
        match failure {
            None if n_removed == 0 => return Ok(()),
            Some(errno) if n_removed == 0 => return Err(errno.into()),
            _ => {}
        }
    }
}

/// Like [`empty`], but keeps the directories along `kept_path`. Their other entries are removed.
pub fn empty_except(top: &OwnedFd, kept_path: &[&str]) -> io::Result<()> {
    let Some((first, rest)) = kept_path.split_first() else { return empty(top) };
    for name in names(top)? {
        match (name.to_str() == Ok(*first))
            .then(|| openat2(top, *first, OPEN, Mode::empty(), BENEATH | ResolveFlags::NO_XDEV))
        {
            Some(Ok(inner)) => empty_except(&inner, rest)?,
            _ => remove(top, &name.to_string_lossy())?,
        }
    }
    Ok(())
}

/// Opens the directory at `relative`, creating missing components.
pub fn make_beneath(root: &OwnedFd, relative: &str) -> io::Result<OwnedFd> {
    if let Some(directory) = open_beneath(root, relative)? {
        return Ok(directory);
    }
    let mut directory = openat2(root, ".", OPEN, Mode::empty(), BENEATH)?;
    for name in components(relative)? {
        match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        directory = openat2(&directory, name, OPEN, Mode::empty(), BENEATH)?;
    }
    Ok(directory)
}

/// Opens the directory at `relative`; `None` if it does not exist.
pub fn open_beneath(root: &OwnedFd, relative: &str) -> io::Result<Option<OwnedFd>> {
    let relative = components(relative)?.join("/");
    let relative = if relative.is_empty() { "." } else { &relative };
    match openat2(root, relative, OPEN, Mode::empty(), BENEATH) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory by a trusted path of the agent.
pub fn open_directory(path: &std::path::Path) -> io::Result<OwnedFd> {
    Ok(open(path, OPEN, Mode::empty())?)
}

/// Splits a relative path into its components. Refuses absolute paths and `..`.
pub fn components(relative: &str) -> io::Result<Vec<&str>> {
    let names: Vec<&str> = relative.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if relative.starts_with('/') || names.contains(&"..") || relative.contains('\0') {
        let text = format!("'{relative}' leads out of its directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(names)
}

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Removes one entry of `top`; the directories inside it are renamed into `top`.
fn remove_level(top: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match unlinkat(top, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return unless_missing(other),
    }
    let directory = open_for_removal(top, name)?;
    let mut failure = None;
    for inner in names(&directory)? {
        let removed = match unlinkat(&directory, &*inner, AtFlags::empty()) {
            Err(Errno::ISDIR) => move_up(&directory, &inner, top),
            other => unless_missing(other),
        };
        failure = removed.err().or(failure);
    }
    match failure {
        Some(errno) => Err(errno),
        None => unless_missing(unlinkat(top, name, AtFlags::REMOVEDIR)),
    }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd) -> Result<(), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Makes the directory writable, which changing its parent requires, and refuses another file system.
    open_for_removal(from, name)?;
    loop {
        let fresh = format!(".removed-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        match renameat_with(from, name, top, fresh.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return unless_missing(other),
        }
    }
}

/// Opens a directory for removal of its content. Restores the owner's permissions, which a job may have removed.
fn open_for_removal(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let resolve = BENEATH | ResolveFlags::NO_XDEV;
    let parent = parent.as_fd();
    let directory = match openat2(parent, name, OPEN, Mode::empty(), resolve) {
        Err(Errno::ACCESS) => {
            // No other process works in this tree any more, so the name still refers to the directory that was refused.
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            openat2(parent, name, OPEN, Mode::empty(), resolve)?
        }
        other => other?,
    };
    if !Mode::from_raw_mode(fstat(&directory)?.st_mode).contains(Mode::RWXU) {
        // Fails for a directory of another user; emptying it then fails too and is reported.
        let _ = fchmod(&directory, Mode::RWXU);
    }
    Ok(directory)
}

/// Names of the directory's entries without `.` and `..`.
pub fn names(directory: &OwnedFd) -> Result<Vec<Box<CStr>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().into());
        }
    }
    Ok(names)
}

fn unless_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn removing_a_tree_keeps_the_targets_of_its_links() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let (tree, share) = (base.path().join("tree"), base.path().join("share"));
        fs::create_dir_all(tree.join("a/b/c/d")).expect("directories");
        fs::create_dir_all(share.join("inner")).expect("directories");
        fs::write(share.join("inner/kept"), "x").expect("a file");
        symlink(&share, tree.join("a/b/mount")).expect("a link");
        symlink(share.join("inner/kept"), tree.join("a/file")).expect("a link");
        fs::write(tree.join("a/b/c/d/file"), "x").expect("a file");
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o500)).expect("a read-only directory");
        let handle = open_directory(base.path()).expect("the base");
        remove(&handle, "tree").expect("all of it can go");
        remove(&handle, "tree").expect("twice is no error");
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(share.join("inner/kept")).expect("it stays"), "x");
    }

    #[test]
    fn deep_trees_are_removed_with_few_descriptors() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let handle = open_directory(base.path()).expect("the base");
        let deep = vec!["d"; 1500].join("/");
        make_beneath(&handle, &deep).expect("deep directories");
        remove(&handle, "d").expect("all of it can go");
        assert_eq!(fs::read_dir(base.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_refused() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let outside = tempfile::tempdir().expect("a temporary directory");
        symlink(outside.path(), base.path().join("link")).expect("a link");
        let handle = open_directory(base.path()).expect("the base");
        assert!(make_beneath(&handle, "link/x").is_err());
        assert!(open_beneath(&handle, "link").is_err());
        assert!(make_beneath(&handle, "a/../../x").is_err());
        assert!(make_beneath(&handle, "/x").is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("a directory").count(), 0);
    }
}
