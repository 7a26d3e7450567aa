//! Copies a file on the server, without its content passing through a client. Uses a reflink if the file system
//! supports it, else `copy_file_range`; holes are preserved.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
};

use rustix::{
    fs::{OFlags, SeekFrom, copy_file_range, ftruncate, ioctl_ficlone, seek},
    io::Errno,
};

use crate::{Properties, Share, ShareError, SharePath, Stat, tree::beneath};

/// Bytes copied between two checks for cancellation.
const COPY_STEP_BYTES: u64 = 16 << 20;

impl Share {
    /// Creates `path`, or replaces its content, with the content of `source` (see [`Share::open_content`]).
    /// `properties` are written before the first byte. If `keep_going` returns false, an empty file remains. If the
    /// copy fails, the destination is removed, since it is neither the old file nor the new one.
    pub fn copy_file(
        &self,
        path: &SharePath,
        (source, source_path): (&Share, &SharePath),
        properties: &Properties,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Stat, ShareError> {
        let (from, from_stat) = source.open_content(source_path)?;
        let (to, _) = beneath::open_file(&self.root, path, OFlags::RDWR | OFlags::CREATE)
            .map_err(|error| error.for_creation(path))?;
        self.write_properties(&to, path, properties)?;
        if is_same(&from, &to) {
            return Stat::from_file(&to, path);
        }
        match ftruncate(&to, 0).and_then(|()| copy_bytes(&from, &to, from_stat.len, keep_going)) {
            Ok(()) => Stat::from_file(&to, path),
            Err(Errno::CANCELED) => {
                let _ = ftruncate(&to, 0);
                Err(ShareError::CopyStopped(path.clone()))
            }
            Err(errno) => {
                let _ = self.delete_file(path);
                Err(ShareError::at("copy to", path, errno))
            }
        }
    }
}

/// Fills the empty file `to` with the first `len` bytes of `from`.
pub(crate) fn copy_bytes(from: &File, to: &File, len: u64, keep_going: &dyn Fn() -> bool) -> Result<(), Errno> {
    if ioctl_ficlone(to, from).is_ok() {
        return ftruncate(to, len);
    }
    let mut position = 0;
    while position < len {
        let start = match seek(from, SeekFrom::Data(position)) {
            Ok(start) => start.min(len),
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        let end = match seek(from, SeekFrom::Hole(start)) {
            Ok(end) => end.min(len),
            Err(Errno::NXIO) => break, // truncated meanwhile
            Err(errno) => return Err(errno),
        };
        position = start;
        while position < end {
            if !keep_going() {
                return Err(Errno::CANCELED);
            }
            match copy_step(from, position, to, position, COPY_STEP_BYTES.min(end - position))? {
                0 => return ftruncate(to, len), // truncated meanwhile: the rest reads as zero
                n => position += n,
            }
        }
    }
    ftruncate(to, len)
}

/// Copies `len` bytes to another offset. Returns the number of bytes that the source had.
pub(crate) fn copy_range(from: &File, from_at: u64, to: &File, to_at: u64, len: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < len {
        match copy_step(from, from_at + done, to, to_at + done, COPY_STEP_BYTES.min(len - done))? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

fn copy_step(from: &File, from_start: u64, to: &File, to_start: u64, len: u64) -> Result<u64, Errno> {
    let (mut from_at, mut to_at) = (from_start, to_start);
    loop {
        match copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), len as usize) {
            Ok(n) => return Ok(n as u64),
            Err(Errno::INTR) => {}
            // Different file systems, or not supported.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    let mut chunk = vec![0; (len as usize).min(1 << 20)];
    let of_io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let n = from.read_at(&mut chunk, from_start).map_err(of_io)?;
    to.write_all_at(&chunk[..n], to_start).map_err(of_io)?;
    Ok(n as u64)
}

fn is_same(a: &File, b: &File) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
