//! Reuse of unchanged job directories and mount symlinks: instead of being removed and created again, they are renamed
//! into a store and back. Nothing that a job has changed, added to or replaced is reused.
//!
//! Reason: when ext4 creates a file, it skips recently removed inodes one by one. A node that ran hundreds of jobs a
//! second spent half of its time there.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use corro_base::fnv::fnv1a_64;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::fs::{fstat, openat, readlinkat, renameat_with, statat};

use crate::fs::dirfd;

/// Store of reusable entries: a directory of the node outside of those that jobs see.
#[derive(Debug)]
pub struct DirReuse {
    store: OwnedFd,
    /// Permissions of directories that this agent creates.
    directory_mode: u32,
}

/// Name of the store in the node's directory.
pub const STORE_DIR: &str = "spare";
const JOB_ENTRY: &str = "job";
/// Entries of the directory of a job on one node: two directories and a file.
const JOB_SUBDIRS: [&str; 2] = ["mounts", "shared"];
const JOB_FILE: &str = "hostfile";

impl DirReuse {
    /// Opens an empty store. Entries that an earlier agent stored are not trusted.
    pub fn open(root: &OwnedFd) -> io::Result<DirReuse> {
        dirfd::remove(root, STORE_DIR)?;
        let store = dirfd::make_beneath(root, STORE_DIR)?;
        let directory_mode = mode_of(&fstat(&store)?);
        Ok(DirReuse { store, directory_mode })
    }

    /// Removes all stored entries.
    pub fn clear(&self) -> io::Result<()> {
        dirfd::empty(&self.store)
    }

    /// Stores the job directory `name` if it is unchanged and none is stored yet. If false, the caller removes it.
    pub fn store_job_dir(&self, parent: &OwnedFd, name: &str) -> bool {
        self.is_unchanged(parent, name).unwrap_or(false)
            && renameat_with(parent, name, &self.store, JOB_ENTRY, RenameFlags::NOREPLACE).is_ok()
    }

    /// Moves the stored job directory to `name`; false if there is none.
    pub fn reuse_job_dir(&self, parent: &OwnedFd, name: &str) -> bool {
        renameat_with(&self.store, JOB_ENTRY, parent, name, RenameFlags::NOREPLACE).is_ok()
    }

    /// Stores the symlink. If false, the caller removes it.
    pub fn store_link(&self, parent: &OwnedFd, name: &str) -> bool {
        let Ok(target) = readlinkat(parent, name, Vec::new()) else { return false };
        let stored = link_name(target.as_bytes());
        renameat_with(parent, name, &self.store, stored.as_str(), RenameFlags::NOREPLACE).is_ok()
    }

    /// Moves a stored symlink to `target` to `name`; false if there is none or `name` exists.
    pub fn reuse_link(&self, target: &Path, parent: &OwnedFd, name: &str) -> bool {
        let target = target.as_os_str().as_bytes();
        let stored = link_name(target);
        let is_it = readlinkat(&self.store, stored.as_str(), Vec::new()).is_ok_and(|found| found.as_bytes() == target);
        is_it && renameat_with(&self.store, stored.as_str(), parent, name, RenameFlags::NOREPLACE).is_ok()
    }

    fn is_unchanged(&self, parent: &OwnedFd, name: &str) -> io::Result<bool> {
        let Some(job) = dirfd::open_beneath(parent, name)? else { return Ok(false) };
        let mut found = dirfd::names(&job)?;
        found.sort();
        let expected = [JOB_FILE, JOB_SUBDIRS[0], JOB_SUBDIRS[1]];
        if mode_of(&fstat(&job)?) != self.directory_mode
            || !found.iter().map(|name| name.to_bytes()).eq(expected.map(str::as_bytes))
        {
            return Ok(false);
        }
        for name in JOB_SUBDIRS {
            let stat = statat(&job, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || mode_of(&stat) != self.directory_mode {
                return Ok(false);
            }
            let inner = openat(&job, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            if !dirfd::names(&inner)?.is_empty() {
                return Ok(false);
            }
        }
        let file = statat(&job, JOB_FILE, AtFlags::SYMLINK_NOFOLLOW)?;
        let plain = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile && file.st_nlink == 1;
        Ok(plain && mode_of(&file) == self.directory_mode & 0o644)
    }
}

fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// Name of a stored symlink, by its target. One symlink for each target is enough.
fn link_name(target: &[u8]) -> String {
    format!("link-{:016x}", fnv1a_64(target))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Changes a new job directory by `change` and checks whether it is stored.
    fn check(change: impl FnOnce(&Path), stored: bool) {
        let base = tempfile::tempdir().expect("a temporary directory");
        let root = dirfd::open_directory(base.path()).expect("the base");
        let dir_reuse = DirReuse::open(&root).expect("a store");
        let job = base.path().join("j");
        for name in JOB_SUBDIRS {
            dirfd::make_beneath(&root, &format!("j/{name}")).expect("a directory");
        }
        fs::write(job.join(JOB_FILE), "x").expect("a file");
        let mode = dir_reuse.directory_mode & 0o644;
        fs::set_permissions(job.join(JOB_FILE), fs::Permissions::from_mode(mode)).expect("its mode");
        change(&job);
        assert_eq!(dir_reuse.store_job_dir(&root, "j"), stored);
        assert_eq!(dir_reuse.reuse_job_dir(&root, "k"), stored);
        assert_eq!((job.exists(), base.path().join("k/mounts").exists()), (!stored, stored));
        assert!(!dir_reuse.reuse_job_dir(&root, "l"), "there was one");
    }

    #[test]
    fn only_an_unchanged_directory_is_stored() {
        let chmod = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("changed");
        check(|_| {}, true);
        check(|job| fs::write(job.join("left"), "").expect("a file"), false);
        check(|job| fs::write(job.join("shared/left"), "").expect("a file"), false);
        check(|job| fs::remove_file(job.join(JOB_FILE)).expect("removed"), false);
        check(|job| fs::hard_link(job.join(JOB_FILE), job.join("../link")).expect("a link"), false);
        check(|job| chmod(&job.join("mounts")), false);
        check(chmod, false);
        let replace = |job: &Path| {
            fs::remove_dir(job.join("shared")).expect("removed");
            std::os::unix::fs::symlink("/tmp", job.join("shared")).expect("a link");
        };
        check(replace, false);
    }

    #[test]
    fn a_stored_link_is_reused_only_for_its_target() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let root = dirfd::open_directory(base.path()).expect("the base");
        let dir_reuse = DirReuse::open(&root).expect("a store");
        std::os::unix::fs::symlink("/a", base.path().join("m")).expect("a link");
        assert!(dir_reuse.store_link(&root, "m") && !base.path().join("m").is_symlink());
        assert!(!dir_reuse.reuse_link(Path::new("/b"), &root, "m"));
        assert!(dir_reuse.reuse_link(Path::new("/a"), &root, "m"));
        assert_eq!(fs::read_link(base.path().join("m")).expect("a link"), Path::new("/a"));
    }
}
