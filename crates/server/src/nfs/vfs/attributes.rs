//! File attributes: the kernel's as NFS sends them, and those that clients set. Modes are limited to permission bits.

use std::fs::{File, FileTimes, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nfs3_server::nfs3_types::nfs3::{
    fattr3, ftype3, nfstime3, sattr3, set_atime, set_mode3, set_mtime, set_size3, specdata3,
};

use super::NfsResult;
use crate::nfs::tree::status_of_io_error;

pub(super) fn attributes(metadata: &Metadata) -> fattr3 {
    let kind = metadata.file_type();
    let time = |time: std::io::Result<SystemTime>| {
        let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        nfstime3 { seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX), nseconds: since.subsec_nanos() }
    };
    let changed = UNIX_EPOCH + Duration::new(metadata.ctime().max(0) as u64, metadata.ctime_nsec().max(0) as u32);
    fattr3 {
        type_: match kind {
            _ if kind.is_dir() => ftype3::NF3DIR,
            _ if kind.is_symlink() => ftype3::NF3LNK,
            _ if kind.is_fifo() => ftype3::NF3FIFO,
            _ if kind.is_socket() => ftype3::NF3SOCK,
            _ if kind.is_block_device() => ftype3::NF3BLK,
            _ if kind.is_char_device() => ftype3::NF3CHR,
            _ => ftype3::NF3REG,
        },
        mode: metadata.mode() & 0o7777,
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        used: metadata.blocks() * 512,
        rdev: specdata3::default(),
        fsid: metadata.dev(),
        fileid: metadata.ino(),
        atime: time(metadata.accessed()),
        mtime: time(metadata.modified()),
        ctime: time(Ok(changed)),
    }
}

pub(super) fn set_attributes(file: &File, wanted: &sattr3) -> NfsResult<()> {
    if let set_size3::Some(size) = wanted.size {
        file.set_len(size).map_err(status_of_io_error)?;
    }
    if let set_mode3::Some(mode) = wanted.mode {
        file.set_permissions(PermissionsExt::from_mode(mode & 0o777)).map_err(status_of_io_error)?;
    }
    let now = SystemTime::now();
    let mut times = FileTimes::new();
    times = match &wanted.atime {
        set_atime::SET_TO_SERVER_TIME => times.set_accessed(now),
        set_atime::SET_TO_CLIENT_TIME(time) => times.set_accessed(time_of(time)),
        set_atime::DONT_CHANGE => times,
    };
    times = match &wanted.mtime {
        set_mtime::SET_TO_SERVER_TIME => times.set_modified(now),
        set_mtime::SET_TO_CLIENT_TIME(time) => times.set_modified(time_of(time)),
        set_mtime::DONT_CHANGE => times,
    };
    file.set_times(times).map_err(status_of_io_error)
}

fn time_of(time: &nfstime3) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::from(time.seconds), time.nseconds.min(999_999_999))
}
