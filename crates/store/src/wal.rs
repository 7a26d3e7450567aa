//! Parser of SQLite's write-ahead log (<https://www.sqlite.org/fileformat2.html#walformat>), run before SQLite opens
//! it. SQLite ignores frames that it cannot verify. That is right after a crash and wrong for a file that was swapped
//! or damaged; this module distinguishes the two.
//!
//! Never writes. States that a crash can leave are never reported as damage: no log, an empty or zeroed one, a
//! truncated or torn header, a log restarted over older frames, a torn last transaction. This holds because commits use
//! `synchronous = FULL`: the header is on disk before the first frame, and each transaction before the next.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::sqlite_header::PageOne;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The last bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

/// Content of a log with respect to its database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wal {
    /// No commit that SQLite would apply, and none that it would lose.
    Empty,
    Commits(Commits),
    Damaged(WalDamage),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    pub page_size: u32,
    /// First page of the database after the first and the last commit that changed it.
    pub first: Option<PageOne>,
    pub last: Option<PageOne>,
    /// Commit numbers (see [`PageOne::commit_number`]) of all commits.
    pub numbers: HashSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalDamage {
    #[error("it is not an SQLite write-ahead log")]
    NotALog,
    #[error("its header is damaged, and it has commits that are not in the database")]
    Header,
    #[error("it is damaged in the middle, and SQLite would ignore the commits after that")]
    Frames,
}

/// Reads the log `wal` of the database file `database`. Time is linear in the log's size; memory holds one frame.
pub(crate) fn read(wal: &File, database: &File) -> io::Result<Wal> {
    let len = wal.metadata()?.len();
    let mut head = vec![0; HEADER_BYTES.min(len as usize)];
    wal.read_exact_at(&mut head, 0)?;
    if head.iter().all(|byte| *byte == 0) {
        let damaged = !is_zero(wal, len)?;
        return Ok(if damaged { Wal::Damaged(WalDamage::NotALog) } else { Wal::Empty });
    }
    if head.len() < HEADER_BYTES {
        let begun = &head[..head.len().min(8)];
        let cut = [MAGIC, MAGIC | 1]
            .iter()
            .any(|magic| [magic.to_be_bytes(), VERSION.to_be_bytes()].concat().starts_with(begun));
        return Ok(if cut { Wal::Empty } else { Wal::Damaged(WalDamage::NotALog) });
    }
    let Some(log) = Log::parse(wal, &head, len) else { return Ok(Wal::Damaged(WalDamage::NotALog)) };
    match log.sum([0, 0], &head[..24]) == [word(&head, 24), word(&head, 28)] {
        true => log.read_frames(),
        false => log.read_behind_torn_header(database),
    }
}

/// Log whose first twelve bytes are valid; these never change while a log is in use.
struct Log<'a> {
    file: &'a File,
    big_endian: bool,
    page_size: u32,
    /// Number of restarts of the log; each increments the first salt.
    restarts: u32,
    salt: [u32; 2],
    checksum: [u32; 2],
    frames: u64,
}

struct Frame {
    page: u32,
    /// Database size in pages after this transaction; 0 for a frame that does not end one.
    commit: u32,
    salt: [u32; 2],
    checksum: [u32; 2],
    bytes: Vec<u8>,
}

impl Frame {
    fn data(&self) -> &[u8] {
        &self.bytes[FRAME_HEADER_BYTES..]
    }
}

impl<'a> Log<'a> {
    fn parse(file: &'a File, head: &[u8], len: u64) -> Option<Self> {
        let (magic, page_size) = (word(head, 0), word(head, 8));
        let known = magic & !1 == MAGIC && word(head, 4) == VERSION;
        let sized = page_size.is_power_of_two() && (512..=65_536).contains(&page_size);
        (known && sized).then(|| Self {
            file,
            big_endian: magic & 1 == 1,
            page_size,
            restarts: word(head, 12),
            salt: [word(head, 16), word(head, 20)],
            checksum: [word(head, 24), word(head, 28)],
            frames: (len - HEADER_BYTES as u64) / (FRAME_HEADER_BYTES as u64 + u64::from(page_size)),
        })
    }

    fn frame(&self, idx: u64) -> io::Result<Frame> {
        let size = FRAME_HEADER_BYTES + self.page_size as usize;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, HEADER_BYTES as u64 + idx * size as u64)?;
        let word = |at| word(&bytes, at);
        let (page, commit, salt, checksum) = (word(0), word(4), [word(8), word(12)], [word(16), word(20)]);
        Ok(Frame { page, commit, salt, checksum, bytes })
    }

    /// SQLite's checksum, chained from frame to frame.
    fn sum(&self, seed: [u32; 2], bytes: &[u8]) -> [u32; 2] {
        let [mut one, mut two] = seed;
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
            };
            one = one.wrapping_add(word(0)).wrapping_add(two);
            two = two.wrapping_add(word(4)).wrapping_add(one);
        }
        [one, two]
    }

    fn follows(&self, frame: &Frame, seed: [u32; 2]) -> bool {
        self.sum(self.sum(seed, &frame.bytes[..8]), frame.data()) == frame.checksum
    }

    fn read_frames(&self) -> io::Result<Wal> {
        let mut commits = Commits { page_size: self.page_size, ..Commits::default() };
        let (mut seed, mut idx, mut any) = (self.checksum, 0, false);
        let mut open: Vec<PageOne> = Vec::new();
        while idx < self.frames {
            let frame = self.frame(idx)?;
            if frame.salt != self.salt || !self.follows(&frame, seed) {
                let foreign = idx == 0 && !self.is_left_by_crash(&frame);
                if foreign || self.has_commits_after(idx)? {
                    return Ok(Wal::Damaged(WalDamage::Frames));
                }
                break;
            }
            (seed, idx) = (frame.checksum, idx + 1);
            if frame.page == 1 {
                open.extend(PageOne::parse(frame.data()));
            }
            if frame.commit != 0 {
                any = true;
                commits.first = commits.first.or(open.first().copied());
                commits.last = open.last().copied().or(commits.last);
                commits.numbers.extend(open.drain(..).map(|page| page.commit_number));
            }
        }
        Ok(if any { Wal::Commits(commits) } else { Wal::Empty })
    }

    /// Whether the first frame may be left from a crash: from before a restart, never written, or partially written.
    fn is_left_by_crash(&self, frame: &Frame) -> bool {
        let is_unwritten = frame.bytes[..FRAME_HEADER_BYTES].iter().all(|byte| *byte == 0);
        is_unwritten || self.salt[0].wrapping_sub(frame.salt[0]) <= self.restarts
    }

    /// Whether two consecutive transactions follow the invalid frame `idx`. The second starts only after the first and
    /// all before it are on disk, so no crash leaves that.
    fn has_commits_after(&self, idx: u64) -> io::Result<bool> {
        let (mut seed, mut commits) = (None, 0);
        for idx in idx..self.frames {
            let frame = self.frame(idx)?;
            if frame.salt != self.salt {
                (seed, commits) = (None, 0);
                continue;
            }
            match seed.is_some_and(|seed| self.follows(&frame, seed)) {
                true => commits += u32::from(frame.commit != 0),
                false => commits = 0,
            }
            if commits == 2 {
                return Ok(true);
            }
            seed = Some(frame.checksum);
        }
        Ok(false)
    }

    /// A header is torn only while a log restarts, which happens after the database has all of its frames.
    fn read_behind_torn_header(&self, database: &File) -> io::Result<Wal> {
        let (mut open, mut committed, mut pages) = (HashMap::new(), HashMap::new(), 0);
        let mut before: Option<Frame> = None;
        for idx in 0..self.frames {
            let frame = self.frame(idx)?;
            let chained = before.as_ref().is_none_or(|b| b.salt == frame.salt && self.follows(&frame, b.checksum));
            if !chained {
                break;
            }
            open.insert(frame.page, idx);
            if frame.commit != 0 {
                committed.extend(open.drain());
                pages = frame.commit;
            }
            before = Some(frame);
        }
        let mut held = vec![0; self.page_size as usize];
        for (page, idx) in committed.into_iter().filter(|(page, _)| (1..=pages).contains(page)) {
            let offset = u64::from(page - 1) * u64::from(self.page_size);
            let same = match database.read_exact_at(&mut held, offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                read => {
                    read.map(|()| held == self.frame(idx).map(|frame| frame.data().to_vec()).unwrap_or_default())?
                }
            };
            if !same {
                return Ok(Wal::Damaged(WalDamage::Header));
            }
        }
        Ok(Wal::Empty)
    }
}

fn is_zero(file: &File, len: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(1 << 16) as usize];
        file.read_exact_at(part, at)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
