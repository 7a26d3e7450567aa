//! Data directory on a small disk, which a test fills and empties while the server runs, is killed and restarts. Shares are on
//! another disk, as the operators' page advises: the ranks' records must survive a full disk.

use std::fs::File;
use std::path::{Path, PathBuf};

use corro_test_support::skip;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, unmount};
use rustix::thread::UnshareFlags;

/// Enough for the database of a long campaign and its nodes.
const MEGABYTES: u32 = 256;

pub struct SmallDisk {
    data: PathBuf,
    filler: PathBuf,
}

impl SmallDisk {
    /// Mounts the disks over `data`, for this thread and all its later children. `None`, with a notice, if this user may not.
    pub fn mount_over(data: &Path) -> Option<Self> {
        // SAFETY: only the mount namespace is unshared, and no other thread of this process depends on this thread's.
        let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        if let Err(error) = unshared {
            skip::unsupported_machine(format_args!("no disk can be filled here: {error}"));
            return None;
        }
        let shares = data.with_file_name("shares");
        for directory in [data, &shares] {
            std::fs::create_dir(directory).expect("a directory");
        }
        let size = std::ffi::CString::new(format!("size={MEGABYTES}m,mode=700")).expect("no zero byte");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("mounts can be private");
        mount("tmpfs", data, "tmpfs", MountFlags::empty(), Some(size.as_c_str())).expect("a small disk");
        std::fs::create_dir(data.join("shares")).expect("a directory");
        mount_bind(&shares, data.join("shares")).expect("shares on the large disk");
        Some(Self { filler: data.join("filler"), data: data.to_owned() })
    }

    /// Fills the disk to the last block.
    pub fn fill(&self) {
        let file = File::create(&self.filler).expect("a file on a disk that is not full yet");
        let mut size = u64::from(MEGABYTES) << 20;
        let mut offset = 0;
        while size >= 4096 {
            match fallocate(&file, FallocateFlags::empty(), offset, size) {
                Ok(()) => offset += size,
                Err(_) => size /= 2,
            }
        }
    }

    pub fn empty(&self) {
        std::fs::remove_file(&self.filler).expect("it was made");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.data.join("shares"), rustix::mount::UnmountFlags::DETACH);
        let _ = unmount(&self.data, rustix::mount::UnmountFlags::DETACH);
    }
}
