//! Bind mounts made by system call: for directories inside a volume, and for read-only volumes.

use std::path::Path;

use corro_shares::VolumeDir;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_bind, mount_remount};

use super::{MountError, mountinfo, privilege_hint};

/// Mounts `source` at `at`. Uses the descriptor, because the path may lead elsewhere by now.
pub fn bind(source: &VolumeDir, at: &Path) -> Result<(), MountError> {
    mount_bind(source.magic_path(), at)
        .map_err(|errno| MountError::Kernel { why: format!("it cannot be mounted: {errno}") })
}

/// Mounts `source` at `at` read-only, without setuid and device files.
pub fn bind_read_only(source: &VolumeDir, at: &Path) -> Result<(), MountError> {
    let failed = |errno: Errno| MountError::Kernel {
        why: format!(
            "it cannot be mounted read-only: {errno}{}. Leave 'ro' out of its options, or let the agent run as root",
            privilege_hint()
        ),
    };
    mount_bind(source.magic_path(), at).map_err(failed)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(at, flags, c"").map_err(|errno| {
        // The mount must not stay writable.
        let _ = mountinfo::unmount_layers(at);
        failed(errno)
    })
}
