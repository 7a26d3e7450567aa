//! Which agreements have an id, and which one loses it when there are too many: the one not used for longest. The coordinator
//! enters. Ids are never used again, so a rank that still uses a lost one is told to ask in full, and nothing is confused.

use std::sync::Arc;

use super::lru_list::SlotIdx;
use super::message_table::MessageTable;
use super::set_response::SetResponse;
use crate::coordinator::request::CacheId;

impl MessageTable {
    pub fn mark_used(&mut self, slot: SlotIdx) {
        if self.recency.newest != Some(slot) {
            self.recency.remove(slot);
            self.recency.append(slot);
        }
    }

    /// Remembers; hands on the ids that are lost by it.
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

    pub fn evict(&mut self, slot: SlotIdx, mut evicted: impl FnMut(CacheId)) {
        if let Some((id, _)) = self.slots[slot].cached.take() {
            self.recency.remove(slot);
            evicted(id);
        }
    }
}
