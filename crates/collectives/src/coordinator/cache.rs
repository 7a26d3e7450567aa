//! Which agreements have an id, and which one loses it when there are too many: the one not used for longest. The coordinator
//! enters. Ids are never used again, so a rank that still uses a lost one is told to ask in full, and nothing is confused.

use std::sync::Arc;

use super::entry::Entry;
use super::message::CacheId;
use super::tally::{SlotIdx, Tally};

/// Slots of one set in the order of their use, as a list linked through their indices.
#[derive(Debug, Default)]
pub struct Links {
    neighbours: Vec<Neighbours>,
    oldest: Option<SlotIdx>,
    newest: Option<SlotIdx>,
    n: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    older: Option<SlotIdx>,
    newer: Option<SlotIdx>,
}

impl Links {
    /// Makes room for one more slot, which is not in the list.
    pub fn grow(&mut self) {
        self.neighbours.push(Neighbours::default());
    }

    pub fn len(&self) -> usize {
        self.n
    }

    fn append(&mut self, slot: SlotIdx) {
        self.neighbours[slot] = Neighbours { older: self.newest, newer: None };
        match self.newest {
            Some(newest) => self.neighbours[newest].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        self.newest = Some(slot);
        self.n += 1;
    }

    fn remove(&mut self, slot: SlotIdx) {
        let Neighbours { older, newer } = std::mem::take(&mut self.neighbours[slot]);
        match older {
            Some(older) => self.neighbours[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.neighbours[newer].older = older,
            None => self.newest = older,
        }
        self.n -= 1;
    }
}

impl Tally {
    pub fn touch(&mut self, slot: SlotIdx) {
        if self.recency.newest != Some(slot) {
            self.recency.remove(slot);
            self.recency.append(slot);
        }
    }

    /// Remembers; hands on the ids that are lost by it.
    pub fn remember(
        &mut self,
        slot: SlotIdx,
        id: CacheId,
        entry: Arc<Entry>,
        capacity: usize,
        mut lost: impl FnMut(CacheId),
    ) {
        self.forget(slot, &mut lost);
        while self.recency.len() >= capacity {
            let oldest = self.recency.oldest.expect("the list is not empty");
            self.forget(oldest, &mut lost);
            self.free_if_unused(oldest);
        }
        self.slots[slot].cached = Some((id, entry));
        self.recency.append(slot);
    }

    pub fn forget(&mut self, slot: SlotIdx, mut lost: impl FnMut(CacheId)) {
        if let Some((id, _)) = self.slots[slot].cached.take() {
            self.recency.remove(slot);
            lost(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(links: &Links) -> Vec<SlotIdx> {
        std::iter::successors(links.oldest, |slot| links.neighbours[*slot].newer).collect()
    }

    #[test]
    fn the_list_keeps_the_order_of_use() {
        let mut links = Links::default();
        (0..4).for_each(|_| links.grow());
        (0..4).for_each(|slot| links.append(slot));
        for (slot, expected) in [(1, [0, 2, 3, 1]), (0, [2, 3, 1, 0]), (0, [2, 3, 1, 0]), (3, [2, 1, 0, 3])] {
            links.remove(slot);
            links.append(slot);
            assert_eq!(order(&links), expected);
        }
        [2, 3, 1, 0].into_iter().for_each(|slot| links.remove(slot));
        assert_eq!((order(&links), links.newest, links.len()), (vec![], None, 0));
    }
}
