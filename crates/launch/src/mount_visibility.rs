//! Test whether a process is in a mount namespace in which a directory is visible. Never
//! fails: a process that has ended, or may not be inspected, has no mounts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corro_base::mountinfo::{self, Mount};

/// A directory as mount tables identify it: equal for all its mounts in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Major and minor device number of the file system.
    device: String,
    /// Path within the file system.
    root: PathBuf,
}

/// A directory that is mounted at its own path only in the mount namespace of a job.
#[derive(Clone, Debug)]
pub struct VisibleDirectory {
    source: Source,
    at: PathBuf,
    own_namespace: Option<u64>,
}

impl VisibleDirectory {
    /// `directory` in the namespace of this process; `None` if it does not exist.
    pub fn new(directory: &Path) -> Option<VisibleDirectory> {
        let at = directory.canonicalize().ok()?;
        let source = source_of(&mounts_of("self"), &at)?;
        Some(VisibleDirectory { source, at, own_namespace: mount_namespace_of("self") })
    }

    /// Whether the process is in another mount namespace in which the directory is mounted at its path. Namespaces that are mere copies of
    /// this one have no such mount.
    pub fn is_visible_to(&self, pid: i32) -> bool {
        let process = pid.to_string();
        let namespace = mount_namespace_of(&process);
        if namespace.is_none() || self.own_namespace.is_none() || namespace == self.own_namespace {
            return false;
        }
        mounts_of(&process).iter().any(|mount| {
            mount.mount_point == self.at && mount.device == self.source.device && mount.root == self.source.root
        })
    }
}

/// Identifies a directory by the mount that contains it: the innermost, and of several the latest.
fn source_of(mounts: &[Mount], directory: &Path) -> Option<Source> {
    let above = mounts.iter().filter(|mount| directory.starts_with(&mount.mount_point));
    let mount = above.max_by_key(|mount| mount.mount_point.components().count())?;
    let within = directory.strip_prefix(&mount.mount_point).ok()?;
    let root = if within.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(within) };
    Some(Source { device: mount.device.clone(), root })
}

fn mount_namespace_of(process: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/mnt")).ok().map(|found| found.ino())
}

fn mounts_of(process: &str) -> Vec<Mount> {
    mountinfo::read(process).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_identified_by_its_mount() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            30 22 8:2 /volumes/a\\040b /data rw - xfs /dev/sdb rw\n";
        let mounts = mountinfo::parse(table);
        let check = |path: &str, device: &str, root: &str| {
            let expected = Source { device: device.into(), root: root.into() };
            assert_eq!(source_of(&mounts, Path::new(path)), Some(expected), "{path}");
        };
        check("/data", "8:2", "/volumes/a b");
        check("/data/nodes/n/jobs", "8:2", "/volumes/a b/nodes/n/jobs");
        check("/database", "8:1", "/database");
    }

    #[test]
    fn nothing_is_visible_to_processes_of_this_namespace() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let visible = VisibleDirectory::new(directory.path()).expect("it is there");
        assert!(!visible.is_visible_to(std::process::id() as i32));
        assert!(VisibleDirectory::new(&directory.path().join("none")).is_none());
    }
}
