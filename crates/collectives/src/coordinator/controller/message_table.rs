//! Who has asked for what, in one process set: names with the requests that arrived, groups, and who has joined. The
//! coordinator enters with arrivals and hears which names are complete. Knows no other set and sends nothing.
//!
//! A name keeps its slot while it waits or is remembered (`cache` has the rest of that), so that a tensor that comes again
//! every step is found by its id, and costs no allocation and no hashing of its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::lru_list::{LruList, SlotIdx};
use super::set_response::SetResponse;
use crate::coordinator::id_map::IdMap;
use crate::coordinator::request::{BARRIER_NAME, CacheId, Request, SetGeneration, SetId};

/// The barrier's slot: it has no name that a tensor could clash with.
pub const BARRIER: SlotIdx = 0;

#[derive(Debug)]
pub struct MessageTable {
    pub id: SetId,
    pub generation: SetGeneration,
    /// Global ranks, ascending.
    pub members: Arc<[u32]>,
    pub slots: Vec<TensorSlot>,
    pub free: Vec<SlotIdx>,
    pub by_name: HashMap<Arc<str>, SlotIdx>,
    pub recency: LruList,
    groups: IdMap<u64, Group>,
    joined: RankBitset,
    pub n_joined: usize,
    pub last_joined: u32,
    /// When somebody joined or an operation became ready: waiting ranks are stuck only if this is long ago.
    pub last_progress: Duration,
}

#[derive(Debug)]
pub struct TensorSlot {
    pub name: Arc<str>,
    pub cached: Option<(CacheId, Arc<SetResponse>)>,
    pub requests: Vec<RankRequest>,
    requested_by: RankBitset,
    /// What arrivals without a request refer to.
    pub hit_response: Option<Arc<SetResponse>>,
    pub group: Option<u64>,
    pub waiting_since: Duration,
    /// Position among all that ever began to wait here.
    pub order: u64,
    is_complete: bool,
}

#[derive(Debug)]
pub struct RankRequest {
    /// In the set.
    pub set_rank: u32,
    /// `None`: as remembered.
    pub full: Option<Box<Request>>,
}

#[derive(Debug)]
struct Group {
    slots: Vec<SlotIdx>,
    n_incomplete: usize,
}

/// A set of places in a process set.
#[derive(Clone, Debug, Default)]
struct RankBitset(Vec<u64>);

impl MessageTable {
    pub fn new(id: SetId, generation: SetGeneration, members: Arc<[u32]>) -> MessageTable {
        let joined = RankBitset::with_capacity(members.len());
        let mut table = MessageTable {
            id,
            generation,
            members,
            slots: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            recency: LruList::default(),
            groups: IdMap::default(),
            joined,
            n_joined: 0,
            last_joined: 0,
            last_progress: Duration::ZERO,
        };
        table.new_slot(BARRIER_NAME.into());
        table
    }

    pub fn set_rank_of(&self, rank: u32) -> Option<u32> {
        self.members.binary_search(&rank).ok().map(|set_rank| set_rank as u32)
    }

    pub fn slot_for(&mut self, name: &Arc<str>) -> SlotIdx {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.new_slot(name.clone());
        self.by_name.insert(name.clone(), slot);
        slot
    }

    fn new_slot(&mut self, name: Arc<str>) -> SlotIdx {
        let requested_by = RankBitset::with_capacity(self.members.len());
        let slot = TensorSlot {
            name,
            cached: None,
            requests: Vec::new(),
            requested_by,
            hit_response: None,
            group: None,
            waiting_since: Duration::ZERO,
            order: 0,
            is_complete: false,
        };
        if let Some(free) = self.free.pop() {
            self.slots[free] = slot;
            return free;
        }
        self.slots.push(slot);
        self.recency.grow();
        self.slots.len() - 1
    }

    /// Binds those of `slots` for which nobody has asked yet: the grouping of whoever asks first holds.
    pub fn bind_group(&mut self, order: u64, slots: impl Iterator<Item = SlotIdx>) {
        let mut members_of_group = Vec::new();
        for slot in slots {
            if self.slots[slot].requests.is_empty() && self.slots[slot].group.is_none() {
                self.slots[slot].group = Some(order);
                members_of_group.push(slot);
            }
        }
        if !members_of_group.is_empty() {
            self.groups.insert(order, Group { n_incomplete: members_of_group.len(), slots: members_of_group });
        }
    }

    /// Notes one rank's wish; what is now to be released goes to `ready`. False when the rank had asked already, which no
    /// honest rank does.
    pub fn add_request(
        &mut self,
        slot: SlotIdx,
        request: RankRequest,
        order: u64,
        now: Duration,
        ready: &mut Vec<SlotIdx>,
    ) -> bool {
        let waiting_slots = &mut self.slots[slot];
        if !waiting_slots.requested_by.insert(request.set_rank) {
            return false;
        }
        if waiting_slots.requests.is_empty() {
            (waiting_slots.waiting_since, waiting_slots.order) = (now, order);
        }
        if request.full.is_none() && waiting_slots.hit_response.is_none() {
            waiting_slots.hit_response = waiting_slots.cached.as_ref().map(|(_, hit_response)| hit_response.clone());
        }
        waiting_slots.requests.push(request);
        self.complete_if_covered(slot, ready);
        true
    }

    /// The rank counts as ready for everything until all have joined. False when it had joined already.
    pub fn join(&mut self, set_rank: u32, rank: u32, now: Duration, ready: &mut Vec<SlotIdx>) -> bool {
        if !self.joined.insert(set_rank) {
            return false;
        }
        self.n_joined += 1;
        (self.last_joined, self.last_progress) = (rank, now);
        for slot in self.waiting_slots() {
            self.complete_if_covered(slot, ready);
        }
        true
    }

    pub fn all_joined(&self) -> bool {
        self.n_joined == self.members.len()
    }

    pub fn clear_joins(&mut self) {
        self.n_joined = 0;
        self.joined.clear();
    }

    /// Slots for which somebody has asked, in the order in which they began to wait.
    pub fn waiting_slots(&self) -> Vec<SlotIdx> {
        let waiting_slots = |slot: &SlotIdx| !self.slots[*slot].requests.is_empty();
        let mut slots: Vec<SlotIdx> = (0..self.slots.len()).filter(waiting_slots).collect();
        slots.sort_by_key(|slot| self.slots[*slot].order);
        slots
    }

    /// Places that have neither asked for this nor joined.
    pub fn missing(&self, slot: SlotIdx) -> impl Iterator<Item = u32> {
        let requested_by = &self.slots[slot].requested_by;
        (0..self.members.len() as u32)
            .filter(|set_rank| !requested_by.contains(*set_rank) && !self.joined.contains(*set_rank))
    }

    /// Places that have not asked for this.
    pub fn not_requested(&self, slot: SlotIdx) -> Vec<u32> {
        if self.slots[slot].requests.len() == self.members.len() {
            return Vec::new();
        }
        (0..self.members.len() as u32).filter(|set_rank| !self.slots[slot].requested_by.contains(*set_rank)).collect()
    }

    pub fn not_joined(&self) -> impl Iterator<Item = u32> {
        (0..self.members.len() as u32).filter(|set_rank| !self.joined.contains(*set_rank))
    }

    /// What was asked for is on its way: the name can be asked for anew.
    pub fn clear(&mut self, slot: SlotIdx) {
        let done = &mut self.slots[slot];
        done.requests.clear();
        done.requested_by.clear();
        (done.hit_response, done.group, done.is_complete) = (None, None, false);
        self.free_if_unused(slot);
    }

    pub fn free_if_unused(&mut self, slot: SlotIdx) {
        let unused = &self.slots[slot];
        if slot != BARRIER && unused.requests.is_empty() && unused.group.is_none() && unused.cached.is_none() {
            self.by_name.remove(&unused.name);
            self.free.push(slot);
        }
    }

    fn complete_if_covered(&mut self, slot: SlotIdx, ready: &mut Vec<SlotIdx>) {
        let waiting_slots = &mut self.slots[slot];
        let n_members = self.members.len();
        let everybody = waiting_slots.requests.len() == n_members
            || (self.n_joined > 0 && waiting_slots.requested_by.union_covers(&self.joined, n_members));
        if !everybody || waiting_slots.is_complete {
            return;
        }
        waiting_slots.is_complete = true;
        let Some(order) = waiting_slots.group else { return ready.push(slot) };
        let group = self.groups.get_mut(&order).expect("a group lives until its last tensor is complete");
        group.n_incomplete -= 1;
        if group.n_incomplete == 0 {
            ready.extend(self.groups.remove(&order).expect("looked up just now").slots);
        }
    }
}

impl RankBitset {
    fn with_capacity(n_members: usize) -> RankBitset {
        RankBitset(vec![0; n_members.div_ceil(64)])
    }

    fn insert(&mut self, set_rank: u32) -> bool {
        let word = &mut self.0[set_rank as usize / 64];
        let bit = 1 << (set_rank % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn contains(&self, set_rank: u32) -> bool {
        self.0[set_rank as usize / 64] & (1 << (set_rank % 64)) != 0
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn union_covers(&self, other: &RankBitset, n_members: usize) -> bool {
        let covered: u32 = self.0.iter().zip(&other.0).map(|(a, b)| (a | b).count_ones()).sum();
        covered as usize == n_members
    }
}
