//! Appending, for logs that several processes write whole lines to. The kernel puts each block at
//! the end of the file as it is at that moment; nothing here reads the length first.

use std::{fs::File, io::IoSlice};

use rustix::{
    fs::{OFlags, ftruncate, tell},
    io::{Errno, write, writev},
};

use crate::{Share, ShareError, SharePath, beneath};

/// A file opened once for appending.
#[derive(Debug)]
pub struct Appender {
    file: File,
    path: SharePath,
}

impl Share {
    /// Opens for appending; makes the file if it is not there, but not its directory.
    pub fn appender(&self, path: &SharePath) -> Result<Appender, ShareError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let (file, _) = beneath::open_file(&self.root, path, flags).map_err(|error| error.for_creation(path))?;
        Ok(Appender { file, path: path.clone() })
    }

    /// Appends once; for more than a few blocks hold an [`Appender`].
    pub fn append(&self, path: &SharePath, bytes: &[u8]) -> Result<(), ShareError> {
        self.appender(path)?.append(bytes)
    }
}

impl Appender {
    /// Appends `bytes` as one block: nobody else's block lands in its middle, as long as the disk
    /// is local (not NFS) and has room for all of it.
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

    /// Appends from several buffers with one call, as one block; where it begins.
    pub fn append_at_end(&self, buffers: &[IoSlice<'_>]) -> Result<u64, ShareError> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let fail = |errno| ShareError::at("append to", &self.path, errno);
        let written = loop {
            match writev(&self.file, buffers) {
                Err(Errno::INTR) => {}
                written => break written.map_err(fail)?,
            }
        };
        let end = tell(&self.file).map_err(fail)?;
        if written < wanted {
            // The disk is full: half a block is worse than none, unless another one follows it already.
            let start = end - written as u64;
            if self.file.metadata().is_ok_and(|metadata| metadata.len() == end) {
                let _ = ftruncate(&self.file, start);
            }
            return Err(fail(Errno::NOSPC));
        }
        Ok(end - written as u64)
    }

    /// Returns when all that was appended is on the disk.
    pub fn sync(&self) -> Result<(), ShareError> {
        self.file.sync_data().map_err(|source| ShareError::Io { attempt: "flush", path: self.path.clone(), source })
    }
}
