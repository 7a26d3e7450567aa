//! A small file in memory through which whoever watches over this process sees the engine and asks it for a timeline. It has no name in any file
//! system: it is found among the process's open files, by what it is called there, and is gone with the process. Entered by
//! [`super::Status`].
//!
//! The first page is the engine's: one JSON object, blanks behind it. A reader that catches it half written finds `seq` and `end`
//! different, or no JSON, and reads again. The second page is the reader's: what it asks for, see [`Wish`]. The size is sealed, so a reader needs
//! no trust in the process to read it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

/// What the open file is called, before the kernel's own words: `/memfd:corro-engine (deleted)`.
pub const NAME: &str = "corro-engine";
/// What was recorded last is called so.
pub const RECORDING: &str = "corro-timeline";
pub const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
pub struct StatusMemfd {
    file: File,
    page: Vec<u8>,
}

/// Four words of eight bytes, little end first: number, milliseconds, most bytes, and all three of them XORed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRequest {
    /// Not 0, and other than before.
    pub number: u64,
    /// How long to record; 0 ends it now.
    pub millis: u64,
    pub max_bytes: u64,
}

impl StatusMemfd {
    pub fn create() -> io::Result<StatusMemfd> {
        let file = sealed_file(NAME)?;
        rustix::fs::ftruncate(&file, 2 * PAGE_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(StatusMemfd { file, page: Vec::with_capacity(PAGE_BYTES) })
    }

    /// `text` is cut to a page, which makes it no JSON any more: whoever writes it sees that it fits.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.page.clear();
        self.page.extend_from_slice(&text.as_bytes()[..text.len().min(PAGE_BYTES)]);
        self.page.resize(PAGE_BYTES, b' ');
        self.file.write_all_at(&self.page, 0)
    }

    /// What was asked for last, if it is whole.
    pub fn record_request(&self) -> Option<RecordRequest> {
        let mut bytes = [0; 32];
        self.file.read_exact_at(&mut bytes, PAGE_BYTES as u64).ok()?;
        let [number, millis, max_bytes, check] =
            [0, 8, 16, 24].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
        (number != 0 && check == number ^ millis ^ max_bytes).then_some(RecordRequest { number, millis, max_bytes })
    }
}

#[cfg(test)]
impl StatusMemfd {
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A file in memory that can be sealed, closed when another program takes the place of this one.
pub fn sealed_file(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}
