//! The kernel's table of mounts: Corro's mounts and unmounting.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use corro_base::mountinfo;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as unmount_call};

/// Prefix of the source of all Corro mounts.
pub const SOURCE_PREFIX: &str = "corro://";

/// A mount of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number `MAJOR:MINOR`; unique while the mount exists.
    pub device: String,
    pub mount_point: PathBuf,
    pub source: String,
}

/// All Corro mounts, the latest last.
pub fn list() -> io::Result<Vec<Mount>> {
    Ok(corro_mounts(mountinfo::read("self")?))
}

/// The visible Corro mount at this mount point.
pub fn find(mount_point: &Path) -> io::Result<Option<Mount>> {
    Ok(list()?.into_iter().rev().find(|mount| mount.mount_point == mount_point))
}

fn corro_mounts(mounts: Vec<mountinfo::Mount>) -> Vec<Mount> {
    let is_corro =
        |mount: &mountinfo::Mount| mount.fs_type.starts_with("fuse") && mount.source.starts_with(SOURCE_PREFIX);
    let convert =
        |mount: mountinfo::Mount| Mount { device: mount.device, mount_point: mount.mount_point, source: mount.source };
    mounts.into_iter().filter(is_corro).map(convert).collect()
}

/// Unmounts. With `lazily` the mount disappears at once, and programs keep their open files.
pub fn unmount(mount_point: &Path, lazily: bool) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW;
    let flags = if lazily { flags | UnmountFlags::DETACH } else { flags };
    match unmount_call(mount_point, flags) {
        Ok(()) => Ok(()),
        // Unprivileged users need `fusermount3`.
        Err(Errno::PERM) => unmount_with_fusermount(mount_point, lazily),
        Err(errno) => Err(errno.into()),
    }
}

fn unmount_with_fusermount(mount_point: &Path, lazily: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(lazily.then_some("-z"))
        .arg("--")
        .arg(mount_point)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let ended = command.stderr(Stdio::piped()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    match message.contains("busy") {
        true => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        false => Err(io::Error::other(message)),
    }
}

/// Unmounts every Corro mount below `root`, served or not, and returns their number.
pub fn unmount_below(root: &Path) -> io::Result<usize> {
    let root = root.canonicalize()?;
    let mut n_unmounted = 0;
    for mount in list()?.iter().rev().filter(|mount| mount.mount_point.starts_with(&root)) {
        unmount(&mount.mount_point, true)?;
        n_unmounted += 1;
    }
    Ok(n_unmounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_corro_mounts_are_listed() {
        let mounts = "22 1 0:20 / / rw - ext4 /dev/root rw\n\
                     36 22 0:53 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse corro://127.0.0.1:1/acc/s\\134x rw,user_id=0\n\
                     37 22 0:54 / /mnt/other rw - fuse.sshfs root@host:/ rw\n\
                     38 22 0:55 / /mnt/c rw - fuse.corro corro://h/acc/t rw\n\
                     nonsense\n";
        let mount = |device: &str, mount_point: &str, source: &str| Mount {
            device: device.into(),
            mount_point: mount_point.into(),
            source: source.into(),
        };
        assert_eq!(
            corro_mounts(mountinfo::parse(mounts.as_bytes())),
            [mount("0:53", "/mnt/a b", "corro://127.0.0.1:1/acc/s\\x"), mount("0:55", "/mnt/c", "corro://h/acc/t"),]
        );
    }
}
