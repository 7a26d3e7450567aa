//! Least-recently-used order of slots, as a doubly linked list over slot indices: no allocation per use.

/// Index of a tensor's slot in the message table.
pub type SlotIdx = usize;

/// Slots in the order of their last use, oldest first.
#[derive(Debug, Default)]
pub struct LruList {
    neighbours: Vec<Neighbours>,
    pub oldest: Option<SlotIdx>,
    pub newest: Option<SlotIdx>,
    n: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    older: Option<SlotIdx>,
    newer: Option<SlotIdx>,
}

impl LruList {
    /// Adds a node for one more slot. The slot is not in the list yet.
    pub fn grow(&mut self) {
        self.neighbours.push(Neighbours::default());
    }

    pub fn len(&self) -> usize {
        self.n
    }

    /// Inserts a slot as the most recently used. It must not be in the list.
    pub fn append(&mut self, slot: SlotIdx) {
        self.neighbours[slot] = Neighbours { older: self.newest, newer: None };
        match self.newest {
            Some(newest) => self.neighbours[newest].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        self.newest = Some(slot);
        self.n += 1;
    }

    /// Removes a slot that is in the list.
    pub fn remove(&mut self, slot: SlotIdx) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn order(links: &LruList) -> Vec<SlotIdx> {
        std::iter::successors(links.oldest, |slot| links.neighbours[*slot].newer).collect()
    }

    #[test]
    fn the_list_keeps_the_order_of_use() {
        let mut links = LruList::default();
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
