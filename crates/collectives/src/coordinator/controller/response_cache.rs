//! Response cache of a process set (Horovod's term): responses get a cache id, and the least recently used one is evicted when the cache
//! is full. Ids are never reused, so a rank that still sends an evicted id is recognised and asked to send the request in full.

use std::sync::Arc;

use super::lru_list::SlotIdx;
use super::message_table::MessageTable;
use super::set_response::SetResponse;
use crate::coordinator::request::CacheId;

impl MessageTable {
    /// Marks a cached response as the most recently used.
    pub fn mark_used(&mut self, slot: SlotIdx) {
        if self.recency.newest != Some(slot) {
            self.recency.remove(slot);
            self.recency.append(slot);
        }
    }

    /// Caches a response under `id` and passes the ids it replaces or evicts to `evicted`.
    pub fn cache_response(
        &mut self,
        slot: SlotIdx,
        id: CacheId,
        response: Arc<SetResponse>,
        capacity: usize,
        mut evicted: impl FnMut(CacheId),
    ) {
        self.evict(slot, &mut evicted);
        while self.recency.len() >= capacity {
            let oldest = self.recency.oldest.expect("the list is not empty");
            self.evict(oldest, &mut evicted);
            self.free_if_unused(oldest);
        }
        self.slots[slot].cached = Some((id, response));
        self.recency.append(slot);
    }

    /// Removes the cached response of a slot, if it has one.
    pub fn evict(&mut self, slot: SlotIdx, mut evicted: impl FnMut(CacheId)) {
        if let Some((id, _)) = self.slots[slot].cached.take() {
            self.recency.remove(slot);
            evicted(id);
        }
    }
}
