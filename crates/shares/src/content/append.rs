//! Append to files, for logs that several processes write whole lines to. Uses `O_APPEND`: the kernel writes each block
//! at the current end of the file; the length is never read first.

use std::{fs::File, io::IoSlice};

use rustix::{
    fs::{OFlags, ftruncate, tell},
    io::{Errno, write, writev},
};

use crate::{Share, ShareError, SharePath, tree::beneath};

/// A file opened for appending.
#[derive(Debug)]
pub struct Appender {
    file: File,
    path: SharePath,
}

impl Share {
    /// Opens for appending. Creates the file, but not its directory.
    pub fn appender(&self, path: &SharePath) -> Result<Appender, ShareError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let (file, _) = beneath::open_file(&self.root, path, flags).map_err(|error| error.for_creation(path))?;
        Ok(Appender { file, path: path.clone() })
    }

    /// Appends once. For more than a few blocks use an [`Appender`].
    pub fn append(&self, path: &SharePath, bytes: &[u8]) -> Result<(), ShareError> {
        self.appender(path)?.append(bytes)
    }
}

impl Appender {
    /// Appends `bytes` as one block: blocks of other writers do not interleave, provided that the disk is local (not
    /// NFS) and has space for all of it.
    pub fn append(&self, mut bytes: &[u8]) -> Result<(), ShareError> {
        while !bytes.is_empty() {
            match write(&self.file, bytes) {
                Ok(0) => return Err(ShareError::at("append to", &self.path, Errno::IO)),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ShareError::at("append to", &self.path, errno)),
            }
        }
        Ok(())
    }

    /// Appends several buffers with one `writev`, as one block. Returns its offset.
    pub fn append_at_end(&self, buffers: &[IoSlice<'_>]) -> Result<u64, ShareError> {
        let expected: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let fail = |errno| ShareError::at("append to", &self.path, errno);
        let written = loop {
            match writev(&self.file, buffers) {
                Err(Errno::INTR) => {}
                written => break written.map_err(fail)?,
            }
        };
        let end = tell(&self.file).map_err(fail)?;
        if written < expected {
            // The disk is full. Part of a block is worse than none, unless another block already follows it.
            let start = end - written as u64;
            if self.file.metadata().is_ok_and(|metadata| metadata.len() == end) {
                let _ = ftruncate(&self.file, start);
            }
            return Err(fail(Errno::NOSPC));
        }
        Ok(end - written as u64)
    }

    /// Returns when all appended data is on disk.
    pub fn sync(&self) -> Result<(), ShareError> {
        self.file.sync_data().map_err(|source| ShareError::Io { attempt: "flush", path: self.path.clone(), source })
    }
}
