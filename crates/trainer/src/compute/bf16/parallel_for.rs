//! Distribution of work items over the threads of a step. Free threads claim items one by one, and each item writes
//! data that no other item writes. Results do not depend on which thread computes an item or when, so they are
//! bit-identical for every number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::amx::AmxTiles;
use crate::thread_pool::ThreadPool;

/// Calls `work` once for each item, with the AMX tiles and the number of the thread that claimed it.
pub fn parallel_for(pool: &ThreadPool, items: usize, work: impl Fn(&AmxTiles, usize, usize) + Sync) {
    let next = AtomicUsize::new(0);
    pool.run(&|thread| {
        // SAFETY: `AmxEngine` exists only if `has_amx` is true; a thread runs one closure of the pool at a time, so it
        // holds no other `AmxTiles`.
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
