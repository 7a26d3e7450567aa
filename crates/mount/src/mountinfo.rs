//! The kernel's table of mounts: Corro's mounts and unmounting.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
}

/// The visible Corro mount at this mount point.
pub fn find(mount_point: &Path) -> io::Result<Option<Mount>> {
    Ok(list()?.into_iter().rev().find(|mount| mount.mount_point == mount_point))
}

/// Parses lines such as `36 35 0:53 / /mnt/x rw,… shared:1 - fuse corro://… rw,…`.
fn parse(mounts: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ');
        let device = fields.nth(2)?.to_owned();
        let mount_point = PathBuf::from(unescape(fields.nth(1)?));
        let mut fields = after.split(' ');
        let (kind, source) = (fields.next()?, unescape(fields.next()?));
        (kind.starts_with("fuse") && source.starts_with(SOURCE_PREFIX)).then_some(Mount { device, mount_point, source })
    };
    mounts.lines().filter_map(line).collect()
}

/// Decodes the kernel's octal escapes of spaces, tabs, newlines and backslashes (`\040`).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
            parse(mounts),
            [mount("0:53", "/mnt/a b", "corro://127.0.0.1:1/acc/s\\x"), mount("0:55", "/mnt/c", "corro://h/acc/t"),]
        );
    }
}
