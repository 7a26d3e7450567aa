//! How the threads of a step share its work: items are taken one by one by whoever is free, and each item writes parts that no other
//! writes. As an item's result does not depend on who computes it, nor when, the bits are the same for every number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::amx::AmxTiles;
use crate::thread_pool::ThreadPool;

/// Calls `work` once for each item, with the tiles of the thread that took it and the thread's number.
pub fn parallel_for(pool: &ThreadPool, items: usize, work: impl Fn(&AmxTiles, usize, usize) + Sync) {
    let next = AtomicUsize::new(0);
    pool.run(&|thread| {
        // SAFETY: an engine of this room is only made where there are tiles; a thread is in one round at a time.
        let tiles = unsafe { AmxTiles::configure() };
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            work(&tiles, thread, item);
        }
    });
}
