//! Pieces of files in memory. What a large piece was read into is kept for the next one: it is filled on one thread and let go on another, and an
//! allocator holds such memory for the thread that asked first, of which there may be hundreds.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use rustix::{buffer::spare_capacity, io::Errno, io::pread};

/// The most bytes a piece of a download has: large enough that the hop to a blocking thread is lost in the copying, small enough to stay in
/// the processor's cache on the way to the socket.
pub const PIECE: usize = 512 << 10;
/// Less comes from the allocator.
const LARGE: usize = 64 << 10;
/// So many buffers are kept when nobody reads.
const MOST_KEPT: usize = 16;

/// `len` bytes of a file, or an error when there are not so many.
pub fn read_piece(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    if !(LARGE..=PIECE).contains(&len) {
        let mut piece = Vec::with_capacity(len);
        fill(&mut piece, file, offset, len)?;
        return Ok(Bytes::from(piece));
    }
    let mut piece = Lent(take());
    fill(&mut piece.0, file, offset, len)?;
    Ok(Bytes::from_owner(piece))
}

fn fill(piece: &mut Vec<u8>, file: &File, offset: u64, len: usize) -> io::Result<()> {
    while piece.len() < len {
        let at = offset + piece.len() as u64;
        match pread(file, spare_capacity(piece), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    piece.truncate(len); // there may be more room than was asked for
    Ok(())
}

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn take() -> Vec<u8> {
    let kept = KEPT.lock().ok().and_then(|mut kept| kept.pop());
    kept.unwrap_or_else(|| Vec::with_capacity(PIECE))
}

/// A buffer that goes back when the last who reads it is done.
struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        if let Ok(mut kept) = KEPT.lock()
            && kept.len() < MOST_KEPT
        {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_piece_is_what_the_file_has_whatever_its_memory_held_before() {
        let mut file = tempfile::tempfile().expect("a file");
        let content: Vec<u8> = (0..2 * PIECE).map(|at| (at % 251) as u8).collect();
        file.write_all(&content).expect("written");
        for (offset, len) in [(0, PIECE), (7, LARGE), (PIECE, PIECE), (3, 10), (0, 2 * PIECE), (9, LARGE + 1), (5, 0)] {
            let piece = read_piece(&file, offset as u64, len).expect("read");
            assert!(piece == content[offset..offset + len], "{len} bytes at {offset}");
        }
        let short = read_piece(&file, PIECE as u64 + 1, PIECE).expect_err("one byte is missing");
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
