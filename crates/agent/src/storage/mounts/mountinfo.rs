//! Reads the kernel's mount table and unmounts. Used before any directory of a node is removed, since the content of
//! mounts belongs to others.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use corro_base::mountinfo;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

/// Whether something is mounted at this path.
pub fn is_mounted(at: &Path) -> io::Result<bool> {
    Ok(mount_table()?.iter().any(|mounted| mounted == at))
}

/// Unmounts all layers at `at`. True if something was mounted.
pub fn unmount_layers(at: &Path) -> io::Result<bool> {
    let layers = mount_table()?.iter().filter(|mounted| *mounted == at).count();
    for _ in 0..layers {
        unmount_one(at)?;
    }
    Ok(layers > 0)
}

/// Unmounts everything at or below `root`, in reverse order of mounting, and returns the number of mounts. Continues
/// after a failure and returns the last error.
pub fn unmount_below(root: &Path) -> io::Result<usize> {
    // The kernel lists canonical paths. A directory that does not exist has no mounts.
    let Ok(root) = root.canonicalize() else { return Ok(0) };
    let found: Vec<PathBuf> = mount_table()?.into_iter().filter(|mounted| mounted.starts_with(&root)).collect();
    let mut failure = None;
    for at in found.iter().rev() {
        if let Err(error) = unmount_one(at) {
            failure = Some(io::Error::new(error.kind(), format!("{} cannot be unmounted: {error}", at.display())));
        }
    }
    failure.map_or(Ok(found.len()), Err)
}

/// Unmounts, lazily if busy: processes keep their open files, and the path is free.
fn unmount_one(at: &Path) -> io::Result<()> {
    let plain = unmount(at, UnmountFlags::NOFOLLOW);
    let done = match plain {
        Err(Errno::BUSY) => unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
        other => other,
    };
    match done {
        // EINVAL and ENOENT: not a mount point any more.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        // FUSE mounts of unprivileged users are unmounted by `fusermount`.
        Err(Errno::PERM) => unmount_with_fusermount(at),
        Err(errno) => Err(errno.into()),
    }
}

fn unmount_with_fusermount(at: &Path) -> io::Result<()> {
    for program in ["fusermount3", "fusermount"] {
        let ended = Command::new(program)
            .args(["-u", "-z", "--"])
            .arg(at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
    }
    Err(Errno::PERM.into())
}

/// All mount points that this process sees, in the order of mounting.
fn mount_table() -> io::Result<Vec<PathBuf>> {
    Ok(mountinfo::read("self")?.into_iter().map(|mount| mount.mount_point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_unmounted_where_nothing_is_mounted() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(!is_mounted(directory.path()).expect("a table") && is_mounted(Path::new("/")).expect("a table"));
        assert!(!unmount_layers(directory.path()).expect("nothing to do"));
        assert_eq!(unmount_below(directory.path()).expect("nothing to do"), 0);
        assert_eq!(unmount_below(&directory.path().join("none")).expect("nothing to do"), 0);
    }
}
