//! Single-producer, single-consumer byte rings in shared memory, one for each ordered pair of ranks of a communicator on a host. Never blocks.

use std::sync::atomic::Ordering;

use crate::transport::shm::segment::{CommRegion, FutexEvent, RING_BYTES};
use crate::transport::shm::step_sync::wake;

const _: () = assert!(RING_BYTES.is_power_of_two(), "positions wrap with their counter");

/// Writes as many bytes as fit into the ring, and wakes its reader if it sleeps.
///
/// # Safety
/// `from` must be readable for `n_bytes`, and no other thread or process writes to this ring.
pub unsafe fn ring_write(region: &CommRegion, me: usize, to: usize, from: *const u8, n_bytes: usize) -> usize {
    let (ends, ring) = (region.ring_ends(me, to), region.ring(me, to));
    let written = ends.written.load(Ordering::Relaxed);
    let room = RING_BYTES - written.wrapping_sub(ends.read.load(Ordering::Acquire)) as usize;
    let n = n_bytes.min(room);
    if n > 0 {
        let at = written as usize % RING_BYTES;
        let first = n.min(RING_BYTES - at);
        // SAFETY: `from` is readable for `n_bytes`; the ring is free from `at` on, as the read position says.
        unsafe {
            std::ptr::copy_nonoverlapping(from, ring.add(at), first);
            std::ptr::copy_nonoverlapping(from.add(first), ring, n - first);
        }
        ends.written.swap(written.wrapping_add(n as u32), Ordering::SeqCst);
        wake_sleeper(region.event(to));
    }
    n
}

/// Reads the bytes that are in the ring, and wakes its writer if it sleeps.
///
/// # Safety
/// `to` must be writable for `n_bytes`, and no other thread or process reads this ring.
pub unsafe fn ring_read(region: &CommRegion, me: usize, from: usize, to: *mut u8, n_bytes: usize) -> usize {
    let (ends, ring) = (region.ring_ends(from, me), region.ring(from, me));
    let read = ends.read.load(Ordering::Relaxed);
    let there = ends.written.load(Ordering::Acquire).wrapping_sub(read) as usize;
    let n = n_bytes.min(there);
    if n > 0 {
        let at = read as usize % RING_BYTES;
        let first = n.min(RING_BYTES - at);
        // SAFETY: `to` is writable for `n_bytes`; the ring is filled from `at` on, as the write position says.
        unsafe {
            std::ptr::copy_nonoverlapping(ring.add(at), to, first);
            std::ptr::copy_nonoverlapping(ring, to.add(first), n - first);
        }
        ends.read.swap(read.wrapping_add(n as u32), Ordering::SeqCst);
        wake_sleeper(region.event(from));
    }
    n
}

/// Wakes the rank that sleeps on the futex, if it has announced its sleep.
#[inline]
pub fn wake_sleeper(event: &FutexEvent) {
    if event.asleep.load(Ordering::SeqCst) != 0 {
        event.count.fetch_add(1, Ordering::SeqCst);
        wake(&event.count);
    }
}
