//! Directory for temporary files of a node's jobs. The path is short, because programs create Unix sockets there, whose
//! paths are limited. Emptied between jobs and removed with the node. Never uses a directory that another user created.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use corro_base::fnv::fnv1a_64;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdir, open, readlinkat, statat, symlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use corro_launch::kill_tagged::tagged_processes;

use crate::fs::dirfd;
use crate::identity::incarnation;

/// The temporary directory of one node, the same for every agent of that node. The node's incarnation is read once.
#[derive(Clone, Debug)]
pub struct TmpDir {
    /// The node's own directory.
    root: PathBuf,
    dir_name: String,
}

/// Parent of the temporary directories of all nodes that this user runs on this machine.
pub fn base_path() -> PathBuf {
    std::env::temp_dir().join(format!("corro-{}", geteuid().as_raw()))
}

impl TmpDir {
    /// The temporary directory of the node in `root`. The directory's incarnation does not change while an agent runs
    /// in it.
    pub fn new(root: &Path) -> TmpDir {
        TmpDir { root: root.to_owned(), dir_name: dir_name(root) }
    }

    pub fn path(&self) -> PathBuf {
        base_path().join(&self.dir_name)
    }

    /// Creates the directory, or empties an existing one.
    pub fn make_empty(&self) -> io::Result<()> {
        loop {
            match self.try_make_empty() {
                // Another node has just removed the parent directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound && std::env::temp_dir().is_dir() => {}
                made => return made,
            }
        }
    }

    fn try_make_empty(&self) -> io::Result<()> {
        match mkdir(base_path(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let base = open_base()?;
        match symlinkat(&self.root, &base, owner_link(&self.dir_name).as_str()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        dirfd::empty(&dirfd::make_beneath(&base, &self.dir_name)?)
    }

    /// Removes the content. The directory stays for the next job: creating and removing directories hundreds of times a
    /// second is slow.
    pub fn empty(&self) -> io::Result<()> {
        match open_base().and_then(|base| dirfd::open_beneath(&base, &self.dir_name)) {
            Ok(Some(directory)) => dirfd::empty(&directory),
            Ok(None) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the directory and its content. No error if it does not exist.
    pub fn remove(&self) -> io::Result<()> {
        match open_base() {
            Ok(base) => {
                remove_entry(&base, &self.dir_name)?;
                // Fails while other nodes use the parent directory.
                let _ = std::fs::remove_dir(base_path());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Removes the directory with this name if it belongs to the node in `root`: a copy of a node's directory knows names
/// that are not its own.
pub fn remove_named(root: &Path, dir_name: &str) -> io::Result<()> {
    let base = match open_base() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        base => base?,
    };
    match readlinkat(&base, owner_link(dir_name).as_str(), Vec::new()) {
        Ok(link) if Path::new(OsStr::from_bytes(link.as_bytes())) == root => remove_entry(&base, dir_name),
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the directories of nodes whose own directory is gone and returns their names. A node with running processes
/// was moved, not removed.
pub fn remove_orphans() -> io::Result<Vec<String>> {
    let base = match open_base() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        base => base?,
    };
    let mut left = Vec::new();
    for file in dirfd::names(&base)? {
        let Some(dir_name) = file.to_str().ok().and_then(|file| file.strip_suffix(OWNER_SUFFIX)) else { continue };
        if statat(&base, &*file, AtFlags::empty()).is_err_and(|errno| errno == Errno::NOENT) && !has_processes(dir_name)
        {
            remove_entry(&base, dir_name)?;
            left.push(dir_name.to_owned());
        }
    }
    Ok(left)
}

/// The owner link is removed last, since it is needed to find the rest.
fn remove_entry(base: &OwnedFd, dir_name: &str) -> io::Result<()> {
    dirfd::remove(base, dir_name)?;
    dirfd::remove(base, &owner_link(dir_name))
}

/// Name of the symlink to the node's own directory.
fn owner_link(dir_name: &str) -> String {
    format!("{dir_name}{OWNER_SUFFIX}")
}

const OWNER_SUFFIX: &str = ".node";

/// Opens the parent directory. `/tmp` is writable for everyone, so the directory must belong to this user and be closed
/// to others.
fn open_base() -> io::Result<OwnedFd> {
    let path = base_path();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let base = open(&path, flags, Mode::empty())?;
    let found = fstat(&base)?;
    if found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 {
        let text = format!("{} belongs to another user or is accessible to others", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(base)
}

fn has_processes(dir_name: &str) -> bool {
    let is_of = |tag: &str| incarnation::incarnation_in(tag).is_some_and(|id| dir_name_of(id) == dir_name);
    tagged_processes().iter().any(|(_, tag)| is_of(tag))
}

/// Name of a node's temporary directory: short, and derived from the directory's incarnation, since node ids and paths
/// may later belong to another node.
pub fn dir_name(root: &Path) -> String {
    incarnation::current_id(root).map_or_else(|| legacy_dir_name(root), |id| dir_name_of(&id).to_owned())
}

/// Name for the node with this incarnation.
pub fn dir_name_of(incarnation: &str) -> &str {
    incarnation.get(..16).unwrap_or(incarnation)
}

/// Agents of the previous version derive the name from the path of the node's directory.
fn legacy_dir_name(root: &Path) -> String {
    format!("{:016x}", fnv1a_64(root.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_is_created_emptied_and_removed() {
        let root = tempfile::tempdir().expect("a root");
        let tmp_dir = TmpDir::new(root.path());
        tmp_dir.make_empty().expect("it can be made");
        let made = tmp_dir.path();
        std::fs::create_dir_all(made.join("deep/er")).expect("a job leaves something");
        tmp_dir.make_empty().expect("it is there");
        assert_eq!(std::fs::read_dir(&made).expect("a directory").count(), 0);
        assert!(made.as_os_str().len() < 60, "{}", made.display());
        std::fs::write(made.join("left"), "x").expect("a file");
        tmp_dir.empty().expect("it can be emptied");
        assert_eq!(std::fs::read_dir(&made).expect("a directory").count(), 0);
        tmp_dir.remove().expect("it goes");
        tmp_dir.empty().expect("none is empty");
        tmp_dir.remove().expect("twice is no error");
        assert!(!made.exists());
        // A directory whose node was removed by another program is found.
        tmp_dir.make_empty().expect("it can be made");
        assert!(!remove_orphans().expect("swept").contains(&dir_name(root.path())));
        root.close().expect("removed");
        // Removed by this call or, on a busy machine, by an agent that has just started.
        remove_orphans().expect("swept");
        assert!(!made.exists());
    }
}
