//! Appending, for logs that several processes write whole lines to. The kernel puts each block at
//! the end of the file as it is at that moment; nothing here reads the length first.

use std::fs::File;

use rustix::{
    fs::OFlags,
    io::{Errno, write},
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
        let (file, _) = beneath::open_file(&self.root, path, flags).map_err(|error| error.making(path))?;
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

    /// Returns when all that was appended is on the disk.
    pub fn sync(&self) -> Result<(), ShareError> {
        self.file.sync_data().map_err(|source| ShareError::Io { attempt: "flush", path: self.path.clone(), source })
    }
}
