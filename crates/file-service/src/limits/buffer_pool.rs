//! Chunks of files in memory, in pooled buffers. A buffer is filled on a blocking thread and freed on another, and an
//! allocator would keep the memory for each of the blocking threads, of which there can be hundreds.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use rustix::{buffer::spare_capacity, io::Errno, io::pread};

/// Maximum chunk of a download: large enough to make the hop to a blocking thread cheap, small enough to stay in the
/// CPU cache on its way to the socket.
pub const CHUNK_BYTES: usize = 512 << 10;
/// Smaller chunks come from the allocator.
const MIN_POOLED_BYTES: usize = 64 << 10;
/// Buffers kept while no download runs.
const MAX_POOLED_BUFFERS: usize = 16;

/// Reads exactly `len` bytes of a file; fails with `UnexpectedEof` if there are fewer.
pub fn read_chunk(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    if !(MIN_POOLED_BYTES..=CHUNK_BYTES).contains(&len) {
        let mut chunk = Vec::with_capacity(len);
        fill(&mut chunk, file, offset, len)?;
        return Ok(Bytes::from(chunk));
    }
    let mut chunk = PooledBuffer(take_buffer());
    fill(&mut chunk.0, file, offset, len)?;
    Ok(Bytes::from_owner(chunk))
}

fn fill(chunk: &mut Vec<u8>, file: &File, offset: u64, len: usize) -> io::Result<()> {
    while chunk.len() < len {
        let at = offset + chunk.len() as u64;
        match pread(file, spare_capacity(chunk), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    chunk.truncate(len); // the capacity can be larger than `len`
    Ok(())
}

static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn take_buffer() -> Vec<u8> {
    let pool = POOL.lock().ok().and_then(|mut pool| pool.pop());
    pool.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
}

/// Returns its buffer to the pool on drop.
struct PooledBuffer(Vec<u8>);

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        if let Ok(mut pool) = POOL.lock()
            && pool.len() < MAX_POOLED_BUFFERS
        {
            pool.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_reused_buffer_holds_only_what_was_read() {
        let mut file = tempfile::tempfile().expect("a file");
        let content: Vec<u8> = (0..2 * CHUNK_BYTES).map(|at| (at % 251) as u8).collect();
        file.write_all(&content).expect("written");
        for (offset, len) in [
            (0, CHUNK_BYTES),
            (7, MIN_POOLED_BYTES),
            (CHUNK_BYTES, CHUNK_BYTES),
            (3, 10),
            (0, 2 * CHUNK_BYTES),
            (9, MIN_POOLED_BYTES + 1),
            (5, 0),
        ] {
            let chunk = read_chunk(&file, offset as u64, len).expect("read");
            assert!(chunk == content[offset..offset + len], "{len} bytes at {offset}");
        }
        let short = read_chunk(&file, CHUNK_BYTES as u64 + 1, CHUNK_BYTES).expect_err("one byte is missing");
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
