//! Parser of mount tables (`/proc/PID/mountinfo`), and test whether a process is in a mount namespace in which a directory is visible. Never
//! fails: a process that has ended, or may not be inspected, has no mounts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory as mount tables identify it: equal for all its mounts in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Major and minor device number of the file system.
    device: String,
    /// Path within the file system.
    root: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    source: Source,
    at: PathBuf,
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
        mounts_of(&process).iter().any(|mount| mount.at == self.at && mount.source == self.source)
    }
}

/// Identifies a directory by the mount that contains it: the innermost, and of several the latest.
fn source_of(mounts: &[Mount], directory: &Path) -> Option<Source> {
    let above = mounts.iter().filter(|mount| directory.starts_with(&mount.at));
    let mount = above.max_by_key(|mount| mount.at.components().count())?;
    let within = directory.strip_prefix(&mount.at).ok()?;
    let root = if within.as_os_str().is_empty() { mount.source.root.clone() } else { mount.source.root.join(within) };
    Some(Source { device: mount.source.device.clone(), root })
}

fn mount_namespace_of(process: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/mnt")).ok().map(|found| found.ino())
}

fn mounts_of(process: &str) -> Vec<Mount> {
    parse(&fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default())
}

/// `36 35 8:1 /root/in/fs /mount/point rw,… - ext4 /dev/sda1 rw`
fn parse(table: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip(2);
        let (device, root, at) = (words.next()?, words.next()?, words.next()?);
        let device = String::from_utf8_lossy(device).into_owned();
        Some(Mount { source: Source { device, root: unescape(root) }, at: unescape(at) })
    };
    table.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// All mount points of a table, in mount order.
pub fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    parse(table).into_iter().map(|mount| mount.at).collect()
}

/// Decodes the octal escapes of blanks and backslashes.
fn unescape(word: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(number)) => {
                plain.push(number);
                rest = &after[3..];
            }
            _ => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_identified_by_its_mount() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            30 22 8:2 /volumes/a\\040b /data rw - xfs /dev/sdb rw\n";
        let mounts = parse(table);
        let check = |path: &str, device: &str, root: &str| {
            let expected = Source { device: device.into(), root: root.into() };
            assert_eq!(source_of(&mounts, Path::new(path)), Some(expected), "{path}");
        };
        check("/data", "8:2", "/volumes/a b");
        check("/data/nodes/n/jobs", "8:2", "/volumes/a b/nodes/n/jobs");
        check("/database", "8:1", "/database");
    }

    #[test]
    fn mount_points_are_unescaped() {
        let table = b"22 1 0:20 / / rw - ext4 /dev/root rw\n\
            30 22 0:40 / /data/nodes/n\\0401/mounts/a\\134b rw,relatime shared:1 - tmpfs tmpfs rw\n";
        let expected = [PathBuf::from("/"), PathBuf::from("/data/nodes/n 1/mounts/a\\b")];
        assert_eq!(mount_points(table), expected);
    }

    #[test]
    fn nothing_is_visible_to_processes_of_this_namespace() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let visible = VisibleDirectory::new(directory.path()).expect("it is there");
        assert!(!visible.is_visible_to(std::process::id() as i32));
        assert!(VisibleDirectory::new(&directory.path().join("none")).is_none());
    }
}
