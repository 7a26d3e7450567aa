//! Memfd through which observers read the engine's status and request recordings. Observers find it by its name in `/proc/PID/fd`; it has no
//! name in a file system and disappears with the process.
//!
//! The engine writes the first page: one JSON object, padded with blanks. After a torn read `seq` and `end` differ or the JSON is invalid, and
//! the reader tries again. Observers write the second page, see [`RecordRequest`]. The size is sealed, so a reader can map or read the file
//! without trusting the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

/// Name of the memfd; `/proc/PID/fd` shows `/memfd:corro-engine (deleted)`.
pub const NAME: &str = "corro-engine";
/// Prefix of the memfd name of recordings.
pub const RECORDING_NAME: &str = "corro-timeline";
pub const PAGE_BYTES: usize = 4096;

/// The memfd and a buffer for its first page.
#[derive(Debug)]
pub struct StatusMemfd {
    file: File,
    page: Vec<u8>,
}

/// Request of an observer for a recording. Stored as four little-endian 64-bit words: number, milliseconds, maximum bytes, and the XOR of all
/// three as checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRequest {
    /// Identifies the request: not 0, and different from the previous one.
    pub number: u64,
    /// Duration of the recording; 0 ends the current one.
    pub millis: u64,
    pub max_bytes: u64,
}

impl StatusMemfd {
    pub fn create() -> io::Result<StatusMemfd> {
        let file = create_memfd(NAME)?;
        rustix::fs::ftruncate(&file, 2 * PAGE_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(StatusMemfd { file, page: Vec::with_capacity(PAGE_BYTES) })
    }

    /// Writes the first page. `text` must fit; a longer one is truncated and no longer valid JSON.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.page.clear();
        self.page.extend_from_slice(&text.as_bytes()[..text.len().min(PAGE_BYTES)]);
        self.page.resize(PAGE_BYTES, b' ');
        self.file.write_all_at(&self.page, 0)
    }

    /// The observer's last request, if its checksum is valid.
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

/// Creates a memfd that can be sealed and is closed on exec.
pub fn create_memfd(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}
