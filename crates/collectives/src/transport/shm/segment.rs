//! Layout of the memory that the ranks of one host share: a memfd, which the kernel frees with its last holder, so nothing is left behind however
//! ranks end. The lower half holds one region per communicator, the upper half regions of any size; pages exist once they are touched.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::transport::shm::device_area;

/// The state that one rank publishes to the others of its host. On two cache lines of its own, because adjacent lines are fetched in pairs.
#[repr(C, align(128))]
pub struct RankSlot {
    /// The last step that this rank has published; also the futex that others sleep on.
    pub step: AtomicU32,
    pub sleepers: AtomicU32,
    /// One more than the core on which this rank last waited for long; 0 if it never has.
    pub processor: AtomicU32,
    /// Payload of small operations, in the same cache lines as the step. Two, used alternately.
    pub inline: [InlinePayload; 2],
}

pub const INLINE_BYTES: usize = 24;
pub type InlinePayload = [u64; INLINE_BYTES / 8];

/// A futex on which a rank sleeps for any of several events.
#[repr(C, align(128))]
pub struct FutexEvent {
    pub count: AtomicU32,
    pub asleep: AtomicU32,
}

/// Write and read positions of a byte ring from one rank to another.
#[repr(C, align(128))]
pub struct RingEnds {
    pub written: AtomicU32,
    _apart: [u8; 124],
    pub read: AtomicU32,
}

const _: () = assert!(size_of::<RankSlot>() == 128 && size_of::<FutexEvent>() == 128 && size_of::<RingEnds>() == 256);

/// Bytes of a slot for small operations, in which every rank reads the whole input of every other.
pub const SMALL_BYTES: usize = 32 * 1024;
/// Large operations pass through these; four, so that no rank waits for the slowest reader (`algorithm::pipelined_shm`).
pub const STAGE_BYTES: usize = 1024 * 1024;
pub const N_STAGES: usize = 4;
pub const RING_BYTES: usize = 128 * 1024;

/// The memory file. Regions of communicators are as large as `n_local` ranks need.
pub struct Segment {
    file: OwnedFd,
    n_local: usize,
}

impl Segment {
    pub fn create(n_local: usize) -> io::Result<Segment> {
        let file = rustix::fs::memfd_create("corro", MemfdFlags::CLOEXEC)?;
        // A sparse size, not memory: more regions than any program makes.
        rustix::fs::ftruncate(&file, (Layout::of(n_local).bytes as u64).saturating_mul(MAX_REGIONS))?;
        Ok(Segment { file, n_local })
    }

    /// Opens the file that another rank of this host created.
    pub fn from_file(file: OwnedFd, n_local: usize) -> Segment {
        Segment { file, n_local }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn comm_region(&self, comm_id: u64) -> io::Result<CommRegion> {
        if comm_id >= MAX_REGIONS / 2 {
            return Err(io::Error::other("too many communicators were made in this world"));
        }
        let layout = Layout::of(self.n_local);
        let base = self.map(comm_id * layout.bytes as u64, layout.bytes)?;
        Ok(CommRegion { base, layout })
    }

    /// A communicator's region and `n_bytes` of plain memory behind it, `first` bytes into the upper half of the file. The caller keeps account of the
    /// [`Segment::shared_region_bytes`] that it takes.
    pub fn shared_region(&self, first: u64, n_bytes: usize) -> io::Result<(CommRegion, SharedRegion)> {
        let layout = Layout::of(self.n_local);
        let half = layout.bytes as u64 * (MAX_REGIONS / 2);
        if first.saturating_add(self.shared_region_bytes(n_bytes)) > half {
            return Err(io::Error::other("too much memory was shared in this world"));
        }
        let region = CommRegion { base: self.map(half + first, layout.bytes)?, layout };
        let base = self.map(half + first + layout.bytes as u64, n_bytes)?;
        Ok((region, SharedRegion { base, n_bytes }))
    }

    pub fn shared_region_bytes(&self, n_bytes: usize) -> u64 {
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

/// The upper half is for shared regions.
const MAX_REGIONS: u64 = 1 << 20;

/// Plain memory shared by all ranks of the host, zero at first. Its users synchronise access.
#[derive(Debug)]
pub struct SharedRegion {
    base: NonNull<u8>,
    n_bytes: usize,
}

// SAFETY: an address of a mapping that lives as long as the value; all access is through raw pointers, which its users synchronise.
unsafe impl Send for SharedRegion {}
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// The address of a range of its bytes.
    pub fn at(&self, first: usize, n_bytes: usize) -> *mut u8 {
        assert!(first <= self.n_bytes && n_bytes <= self.n_bytes - first, "{n_bytes} bytes at {first}");
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.base.as_ptr().add(first) }
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        // SAFETY: this mapping, whole; its users borrow it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.n_bytes) };
    }
}

/// The mapped region of one communicator. Gives out addresses only; [`super::step_sync`] says who may access what when.
#[derive(Debug)]
pub struct CommRegion {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain addresses of shared memory; all access goes through atomics or follows the order they make.
unsafe impl Send for CommRegion {}
unsafe impl Sync for CommRegion {}

impl CommRegion {
    pub fn slot(&self, member: usize) -> &RankSlot {
        assert!(member < self.layout.n);
        // SAFETY: in bounds by the assertion; zero bytes are a valid `RankSlot`, and its payload is read and written as raw memory.
        unsafe { &*self.at(member * size_of::<RankSlot>()).cast::<RankSlot>() }
    }

    pub fn event(&self, member: usize) -> &FutexEvent {
        assert!(member < self.layout.n);
        // SAFETY: as above.
        unsafe { &*self.at(self.layout.events + member * size_of::<FutexEvent>()).cast::<FutexEvent>() }
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

    /// Memory in which members describe their tensors in device memory ([`device_area`]).
    pub fn device_area(&self) -> *mut u8 {
        self.at(self.layout.device)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.bytes);
        // SAFETY: every caller's offset lies inside the mapping, by the layout and its own bounds.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for CommRegion {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly this mapping; addresses into it borrow the region.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.layout.bytes) };
    }
}

/// Offsets of the parts of a communicator's region.
#[derive(Clone, Copy, Debug)]
struct Layout {
    n: usize,
    events: usize,
    ring_ends: usize,
    smalls: usize,
    stages: usize,
    rings: usize,
    device: usize,
    bytes: usize,
}

impl Layout {
    fn of(n: usize) -> Layout {
        let events = page(n * size_of::<RankSlot>());
        let ring_ends = page(events + n * size_of::<FutexEvent>());
        let smalls = page(ring_ends + n * n * size_of::<RingEnds>());
        let stages = page(smalls + n * 2 * SMALL_BYTES);
        let rings = page(stages + n * N_STAGES * STAGE_BYTES);
        let device = page(rings + n * n * RING_BYTES);
        let bytes = page(device + device_area::area_bytes(n));
        Layout { n, events, ring_ends, smalls, stages, rings, device, bytes }
    }
}

/// Rounds up to whole pages of this machine.
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
        let (one, other) =
            (segment.comm_region(5).expect("a region"), segment.comm_region(5).expect("the same region"));
        one.slot(2).step.store(7, Ordering::Release);
        one.event(2).count.store(8, Ordering::Release);
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
        assert_eq!(other.slot(2).step.load(Ordering::Acquire), 7);
        assert_eq!(other.event(2).count.load(Ordering::Acquire), 8);
        assert_eq!(other.ring_ends(2, 2).read.load(Ordering::Acquire), 9);
        let elsewhere = segment.comm_region(6).expect("another region");
        assert_eq!(elsewhere.slot(2).step.load(Ordering::Acquire), 0);
    }

    #[test]
    fn shared_regions_overlap_neither_comm_regions_nor_each_other() {
        let segment = Segment::create(2).expect("a memory file");
        let bytes = segment.shared_region_bytes(100);
        let ((sync, one), (_, other)) =
            (segment.shared_region(0, 100).expect("a region"), segment.shared_region(bytes, 100).expect("another"));
        let (_, again) = segment.shared_region(0, 100).expect("the first once more");
        sync.slot(1).step.store(7, Ordering::Release);
        // SAFETY: addresses of the mappings.
        unsafe {
            one.at(99, 1).write(3);
            assert_eq!((again.at(99, 1).read(), other.at(99, 1).read(), again.at(0, 1).read()), (3, 0, 0));
        }
        let last = segment.comm_region(MAX_REGIONS / 2 - 1).expect("the last region");
        assert_eq!(last.slot(1).step.load(Ordering::Acquire), 0);
        assert!(segment.comm_region(MAX_REGIONS / 2).is_err() && segment.shared_region(u64::MAX, 100).is_err());
    }

    #[test]
    fn max_regions_fit_into_a_file() {
        assert!((Layout::of(256).bytes as u64).checked_mul(MAX_REGIONS).is_some_and(|bytes| bytes < i64::MAX as u64));
        assert!(Segment::create(256).is_ok());
    }
}
