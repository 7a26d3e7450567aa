//! The memory that the ranks of one host share: an anonymous file that exists only as long as somebody holds it, so nothing is
//! left behind however they end. Cut into areas, one for each communicator ever made, and rooms of any size behind them; pages exist
//! once they are touched. Entered by `local` (who makes and hands over the file), by `board` (who reads and writes an area) and by `optimizer::commons`.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// What one rank says to the others of its host. On two cache lines of its own, because neighbours are fetched in pairs.
#[repr(C, align(128))]
pub struct Line {
    /// How many steps of the common sequence this rank has made; also what others sleep on.
    pub step: AtomicU32,
    pub sleepers: AtomicU32,
    /// One more than the processor this rank last waited on for long.
    pub processor: AtomicU32,
    /// A few bytes that travel with a step, so that small operations move one line. Two, taken in turns.
    pub notes: [Note; 2],
}

pub const NOTE_BYTES: usize = 24;
pub type Note = [u64; NOTE_BYTES / 8];

/// Where a rank sleeps when any of several things may come.
#[repr(C, align(128))]
pub struct Bell {
    pub rung: AtomicU32,
    pub asleep: AtomicU32,
}

/// Positions of a ring of bytes from one rank to another: written, and read.
#[repr(C, align(128))]
pub struct RingEnds {
    pub written: AtomicU32,
    _apart: [u8; 124],
    pub read: AtomicU32,
}

const _: () = assert!(size_of::<Line>() == 128 && size_of::<Bell>() == 128 && size_of::<RingEnds>() == 256);

/// Small operations: everybody reads everybody's whole input.
pub const SMALL_BYTES: usize = 32 * 1024;
/// Large operations pass through these; four, so that nobody waits for the slowest reader (`algorithm::staged`).
pub const STAGE_BYTES: usize = 1024 * 1024;
pub const N_STAGES: usize = 4;
pub const RING_BYTES: usize = 128 * 1024;

/// The file. The areas are as large as `n_local` ranks need.
pub struct Segment {
    file: OwnedFd,
    n_local: usize,
}

impl Segment {
    pub fn create(n_local: usize) -> io::Result<Segment> {
        let file = rustix::fs::memfd_create("corro", MemfdFlags::CLOEXEC)?;
        // A size, not memory. As far as a file offset goes, there are more areas than anybody makes.
        rustix::fs::ftruncate(&file, (Layout::of(n_local).bytes as u64).saturating_mul(MOST_AREAS))?;
        Ok(Segment { file, n_local })
    }

    /// What another rank of this host created.
    pub fn received(file: OwnedFd, n_local: usize) -> Segment {
        Segment { file, n_local }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn area(&self, number: u64) -> io::Result<Area> {
        if number >= MOST_AREAS / 2 {
            return Err(io::Error::other("too many communicators were made in this world"));
        }
        let layout = Layout::of(self.n_local);
        let base = self.map(number * layout.bytes as u64, layout.bytes)?;
        Ok(Area { base, layout })
    }

    /// An area and `n_bytes` of plain memory behind it, `first` bytes into the half of the file that is for such. Whoever takes it says which
    /// bytes are taken: [`Segment::room_bytes`] of them.
    pub fn room(&self, first: u64, n_bytes: usize) -> io::Result<(Area, Room)> {
        let layout = Layout::of(self.n_local);
        let half = layout.bytes as u64 * (MOST_AREAS / 2);
        if first.saturating_add(self.room_bytes(n_bytes)) > half {
            return Err(io::Error::other("too much memory was shared in this world"));
        }
        let area = Area { base: self.map(half + first, layout.bytes)?, layout };
        let base = self.map(half + first + layout.bytes as u64, n_bytes)?;
        Ok((area, Room { base, n_bytes }))
    }

    pub fn room_bytes(&self, n_bytes: usize) -> u64 {
        Layout::of(self.n_local).bytes as u64 + page(n_bytes) as u64
    }

    fn map(&self, first: u64, n_bytes: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                n_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &self.file,
                first,
            )?
        };
        Ok(NonNull::new(base.cast()).expect("a mapping is not at null"))
    }
}

/// Rooms have the upper half of them.
const MOST_AREAS: u64 = 1 << 20;

/// Plain memory that all ranks of the host see: zeros at first. Who may touch what when is for its users to agree on.
#[derive(Debug)]
pub struct Room {
    base: NonNull<u8>,
    n_bytes: usize,
}

// SAFETY: a plain address of shared memory; what is done with it is its users' affair.
unsafe impl Send for Room {}
unsafe impl Sync for Room {}

impl Room {
    /// The address of some bytes of it.
    pub fn at(&self, first: usize, n_bytes: usize) -> *mut u8 {
        assert!(first <= self.n_bytes && n_bytes <= self.n_bytes - first, "{n_bytes} bytes at {first}");
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.base.as_ptr().add(first) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: this mapping, whole; its users borrow it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.n_bytes) };
    }
}

/// One communicator's part, mapped. Only addresses here: who may touch what when is `board`'s knowledge.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain addresses of shared memory; all access goes through atomics or follows the order they make.
unsafe impl Send for Area {}
unsafe impl Sync for Area {}

impl Area {
    pub fn line(&self, member: usize) -> &Line {
        assert!(member < self.layout.n);
        // SAFETY: in bounds by the assertion; zero bytes are a valid `Line`, and its notes are read and written as raw memory.
        unsafe { &*self.at(member * size_of::<Line>()).cast::<Line>() }
    }

    pub fn bell(&self, member: usize) -> &Bell {
        assert!(member < self.layout.n);
        // SAFETY: as above.
        unsafe { &*self.at(self.layout.bells + member * size_of::<Bell>()).cast::<Bell>() }
    }

    pub fn ring_ends(&self, from: usize, to: usize) -> &RingEnds {
        assert!(from < self.layout.n && to < self.layout.n);
        let ring = from * self.layout.n + to;
        // SAFETY: as above.
        unsafe { &*self.at(self.layout.ring_ends + ring * size_of::<RingEnds>()).cast::<RingEnds>() }
    }

    /// `RING_BYTES` that only `from` writes and only `to` reads, as `ring_ends` say.
    pub fn ring(&self, from: usize, to: usize) -> *mut u8 {
        assert!(from < self.layout.n && to < self.layout.n);
        self.at(self.layout.rings + (from * self.layout.n + to) * RING_BYTES)
    }

    /// `SMALL_BYTES` that only this member writes.
    pub fn small(&self, member: usize, turn: usize) -> *mut u8 {
        assert!(member < self.layout.n && turn < 2);
        self.at(self.layout.smalls + (member * 2 + turn) * SMALL_BYTES)
    }

    /// `STAGE_BYTES` that only this member writes.
    pub fn stage(&self, member: usize, turn: usize) -> *mut u8 {
        assert!(member < self.layout.n && turn < N_STAGES);
        self.at(self.layout.stages + (member * N_STAGES + turn) * STAGE_BYTES)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.bytes);
        // SAFETY: every caller's offset lies inside the mapping, by the layout and its own bounds.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this mapping, whole, and nobody holds an address of it: they borrow the area.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.layout.bytes) };
    }
}

/// Where the parts of an area begin.
#[derive(Clone, Copy, Debug)]
struct Layout {
    n: usize,
    bells: usize,
    ring_ends: usize,
    smalls: usize,
    stages: usize,
    rings: usize,
    bytes: usize,
}

impl Layout {
    fn of(n: usize) -> Layout {
        let bells = page(n * size_of::<Line>());
        let ring_ends = page(bells + n * size_of::<Bell>());
        let smalls = page(ring_ends + n * n * size_of::<RingEnds>());
        let stages = page(smalls + n * 2 * SMALL_BYTES);
        let rings = page(stages + n * N_STAGES * STAGE_BYTES);
        Layout { n, bells, ring_ends, smalls, stages, rings, bytes: page(rings + n * n * RING_BYTES) }
    }
}

/// Whole pages, whatever their size is here.
fn page(offset: usize) -> usize {
    offset.next_multiple_of(64 * 1024)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn parts_do_not_overlap_and_two_mappings_see_the_same() {
        let segment = Segment::create(3).expect("a memory file");
        let (one, other) = (segment.area(5).expect("an area"), segment.area(5).expect("the same area"));
        one.line(2).step.store(7, Ordering::Release);
        one.bell(2).rung.store(8, Ordering::Release);
        one.ring_ends(2, 2).read.store(9, Ordering::Release);
        // SAFETY: addresses of parts of the mapping, one byte each at their ends.
        unsafe {
            one.small(2, 1).add(SMALL_BYTES - 1).write(1);
            one.stage(2, 3).add(STAGE_BYTES - 1).write(2);
            one.ring(2, 2).add(RING_BYTES - 1).write(3);
            assert_eq!(other.small(2, 1).add(SMALL_BYTES - 1).read(), 1);
            assert_eq!(other.stage(2, 3).add(STAGE_BYTES - 1).read(), 2);
            assert_eq!(other.ring(2, 2).add(RING_BYTES - 1).read(), 3);
            assert_eq!((other.stage(0, 0).read(), other.ring(0, 0).read()), (0, 0));
        }
        assert_eq!(other.line(2).step.load(Ordering::Acquire), 7);
        assert_eq!(other.bell(2).rung.load(Ordering::Acquire), 8);
        assert_eq!(other.ring_ends(2, 2).read.load(Ordering::Acquire), 9);
        let elsewhere = segment.area(6).expect("another area");
        assert_eq!(elsewhere.line(2).step.load(Ordering::Acquire), 0);
    }

    #[test]
    fn rooms_are_apart_from_areas_and_from_each_other() {
        let segment = Segment::create(2).expect("a memory file");
        let bytes = segment.room_bytes(100);
        let ((board, one), (_, other)) =
            (segment.room(0, 100).expect("a room"), segment.room(bytes, 100).expect("another"));
        let (_, again) = segment.room(0, 100).expect("the first once more");
        board.line(1).step.store(7, Ordering::Release);
        // SAFETY: addresses of the mappings.
        unsafe {
            one.at(99, 1).write(3);
            assert_eq!((again.at(99, 1).read(), other.at(99, 1).read(), again.at(0, 1).read()), (3, 0, 0));
        }
        let last = segment.area(MOST_AREAS / 2 - 1).expect("the last area");
        assert_eq!(last.line(1).step.load(Ordering::Acquire), 0);
        assert!(segment.area(MOST_AREAS / 2).is_err() && segment.room(u64::MAX, 100).is_err());
    }

    #[test]
    fn as_many_areas_as_are_promised_fit_into_a_file() {
        assert!((Layout::of(256).bytes as u64).checked_mul(MOST_AREAS).is_some_and(|bytes| bytes < i64::MAX as u64));
        assert!(Segment::create(256).is_ok());
    }
}
