//! Message table of one process set (Horovod's term): the requests received per tensor name, groups, and joined ranks. Reports which
//! tensors are complete, that is, requested by all members that have not joined.
//!
//! A tensor keeps its slot while it is incomplete or its response is cached. A tensor that recurs every step is found by its cache id,
//! without allocation and without hashing its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::lru_list::{LruList, SlotIdx};
use super::set_response::SetResponse;
use crate::coordinator::id_map::IdMap;
use crate::coordinator::request::{BARRIER_NAME, CacheId, Request, SetGeneration, SetId};

/// Slot of the barrier. It is not in the name index, so a tensor of the same name is a different slot.
pub const BARRIER: SlotIdx = 0;

/// Requests, groups and joins of one process set.
#[derive(Debug)]
pub struct MessageTable {
    pub id: SetId,
    pub generation: SetGeneration,
    /// Global ranks, ascending.
    pub members: Arc<[u32]>,
    pub slots: Vec<TensorSlot>,
    /// Unused slots.
    pub free: Vec<SlotIdx>,
    pub by_name: HashMap<Arc<str>, SlotIdx>,
    /// Slots with a cached response, by last use.
    pub recency: LruList,
    groups: IdMap<u64, Group>,
    joined: RankBitset,
    pub n_joined: usize,
    /// Global rank.
    pub last_joined: u32,
    /// Time of the last join or completed tensor. Joined ranks count as stalled only if this is long ago.
    pub last_progress: Duration,
}

/// State of one tensor name.
#[derive(Debug)]
pub struct TensorSlot {
    pub name: Arc<str>,
    pub cached: Option<(CacheId, Arc<SetResponse>)>,
    pub requests: Vec<RankRequest>,
    requested_by: RankBitset,
    /// Cached response that was valid at the first cache hit. Cache hits refer to it even if it is evicted before the tensor is complete.
    pub hit_response: Option<Arc<SetResponse>>,
    /// Id of the group the tensor belongs to.
    pub group: Option<u64>,
    /// Time of the first request.
    pub waiting_since: Duration,
    /// Serial number of the first request, for ordering.
    pub order: u64,
    is_complete: bool,
}

/// Request of one rank for one tensor.
#[derive(Debug)]
pub struct RankRequest {
    /// Index of the rank in the process set.
    pub set_rank: u32,
    /// Full request; `None` for a cache hit.
    pub full: Option<Box<Request>>,
}

/// Tensors that are released together.
#[derive(Debug)]
struct Group {
    slots: Vec<SlotIdx>,
    n_incomplete: usize,
}

/// Set of ranks, by their index in the process set.
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

    /// Index of a global rank in the set; `None` for a non-member.
    pub fn set_rank_of(&self, rank: u32) -> Option<u32> {
        self.members.binary_search(&rank).ok().map(|set_rank| set_rank as u32)
    }

    /// Slot of a tensor name; allocates one for a new name.
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

    /// Groups those of `slots` that no rank has requested yet: the grouping of the first request is the one that counts.
    pub fn bind_group(&mut self, group_id: u64, slots: impl Iterator<Item = SlotIdx>) {
        let mut group_slots = Vec::new();
        for slot in slots {
            if self.slots[slot].requests.is_empty() && self.slots[slot].group.is_none() {
                self.slots[slot].group = Some(group_id);
                group_slots.push(slot);
            }
        }
        if !group_slots.is_empty() {
            self.groups.insert(group_id, Group { n_incomplete: group_slots.len(), slots: group_slots });
        }
    }

    /// Records a request and appends the slots that it completes to `ready`. False if the rank has already requested the tensor, which a
    /// correct worker never does.
    pub fn add_request(
        &mut self,
        slot: SlotIdx,
        request: RankRequest,
        order: u64,
        now: Duration,
        ready: &mut Vec<SlotIdx>,
    ) -> bool {
        let tensor = &mut self.slots[slot];
        if !tensor.requested_by.insert(request.set_rank) {
            return false;
        }
        if tensor.requests.is_empty() {
            (tensor.waiting_since, tensor.order) = (now, order);
        }
        if request.full.is_none() && tensor.hit_response.is_none() {
            tensor.hit_response = tensor.cached.as_ref().map(|(_, response)| response.clone());
        }
        tensor.requests.push(request);
        self.complete_if_covered(slot, ready);
        true
    }

    /// Marks a rank as joined: it counts as ready for every tensor until all have joined. False if it had already joined.
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

    /// Starts over after all members have joined.
    pub fn clear_joins(&mut self) {
        self.n_joined = 0;
        self.joined.clear();
    }

    /// Slots with at least one request, in the order of their first request.
    pub fn waiting_slots(&self) -> Vec<SlotIdx> {
        let is_waiting = |slot: &SlotIdx| !self.slots[*slot].requests.is_empty();
        let mut slots: Vec<SlotIdx> = (0..self.slots.len()).filter(is_waiting).collect();
        slots.sort_by_key(|slot| self.slots[*slot].order);
        slots
    }

    /// Set ranks that have neither requested the tensor nor joined.
    pub fn missing(&self, slot: SlotIdx) -> impl Iterator<Item = u32> {
        let requested_by = &self.slots[slot].requested_by;
        (0..self.members.len() as u32)
            .filter(|set_rank| !requested_by.contains(*set_rank) && !self.joined.contains(*set_rank))
    }

    /// Set ranks that have not requested the tensor. For a complete tensor these are the joined ones.
    pub fn not_requested(&self, slot: SlotIdx) -> Vec<u32> {
        if self.slots[slot].requests.len() == self.members.len() {
            return Vec::new();
        }
        (0..self.members.len() as u32).filter(|set_rank| !self.slots[slot].requested_by.contains(*set_rank)).collect()
    }

    /// Set ranks that have not joined.
    pub fn not_joined(&self) -> impl Iterator<Item = u32> {
        (0..self.members.len() as u32).filter(|set_rank| !self.joined.contains(*set_rank))
    }

    /// Removes the requests of a tensor whose response is queued; the name can then be requested again.
    pub fn clear(&mut self, slot: SlotIdx) {
        let done = &mut self.slots[slot];
        done.requests.clear();
        done.requested_by.clear();
        (done.hit_response, done.group, done.is_complete) = (None, None, false);
        self.free_if_unused(slot);
    }

    /// Frees a slot without requests, group and cached response.
    pub fn free_if_unused(&mut self, slot: SlotIdx) {
        let unused = &self.slots[slot];
        if slot != BARRIER && unused.requests.is_empty() && unused.group.is_none() && unused.cached.is_none() {
            self.by_name.remove(&unused.name);
            self.free.push(slot);
        }
    }

    /// Marks a slot as complete if all members have requested it or joined. A tensor of a group becomes ready with the whole group.
    fn complete_if_covered(&mut self, slot: SlotIdx, ready: &mut Vec<SlotIdx>) {
        let tensor = &mut self.slots[slot];
        let n_members = self.members.len();
        let is_covered = tensor.requests.len() == n_members
            || (self.n_joined > 0 && tensor.requested_by.union_covers(&self.joined, n_members));
        if !is_covered || tensor.is_complete {
            return;
        }
        tensor.is_complete = true;
        let Some(group_id) = tensor.group else { return ready.push(slot) };
        let group = self.groups.get_mut(&group_id).expect("a group exists until its last tensor is complete");
        group.n_incomplete -= 1;
        if group.n_incomplete == 0 {
            ready.extend(self.groups.remove(&group_id).expect("looked up just now").slots);
        }
    }
}

impl RankBitset {
    fn with_capacity(n_members: usize) -> RankBitset {
        RankBitset(vec![0; n_members.div_ceil(64)])
    }

    /// False if the rank was already in the set.
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

    /// True if every member is in one of the two sets.
    fn union_covers(&self, other: &RankBitset, n_members: usize) -> bool {
        let covered: u32 = self.0.iter().zip(&other.0).map(|(a, b)| (a | b).count_ones()).sum();
        covered as usize == n_members
    }
}
