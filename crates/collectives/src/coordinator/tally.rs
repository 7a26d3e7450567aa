//! Who has asked for what, in one process set: names with the requests that arrived, groups, and who has joined. The
//! coordinator enters with arrivals and hears which names are complete. Knows no other set and sends nothing.
//!
//! A name keeps its slot while it waits or is remembered (`cache` has the rest of that), so that a tensor that comes again
//! every step is found by its id, and costs no allocation and no hashing of its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::cache::Links;
use super::entry::Entry;
use super::ids::IdMap;
use super::message::{Area, CacheId, Request, SetId};

/// Where a name is in [`Tally::slots`].
pub type SlotIdx = usize;

/// The barrier's slot: it has no name that a tensor could clash with.
pub const BARRIER: SlotIdx = 0;
pub const BARRIER_NAME: &str = "barrier.noname";

#[derive(Debug)]
pub struct Tally {
    pub id: SetId,
    pub area: Area,
    /// Global ranks, ascending.
    pub members: Arc<[u32]>,
    pub slots: Vec<Slot>,
    pub free: Vec<SlotIdx>,
    pub by_name: HashMap<Arc<str>, SlotIdx>,
    pub recency: Links,
    groups: IdMap<u64, Group>,
    joined: Places,
    pub n_joined: usize,
    pub last_joined: u32,
    /// When somebody joined or an operation became ready: waiting ranks are stuck only if this is long ago.
    pub last_progress: Duration,
}

#[derive(Debug)]
pub struct Slot {
    pub name: Arc<str>,
    pub cached: Option<(CacheId, Arc<Entry>)>,
    pub arrivals: Vec<Arrival>,
    seen: Places,
    /// What arrivals without a request refer to.
    pub entry: Option<Arc<Entry>>,
    pub group: Option<u64>,
    pub since: Duration,
    /// Position among all that ever began to wait here.
    pub serial: u64,
    complete: bool,
}

#[derive(Debug)]
pub struct Arrival {
    /// In the set.
    pub place: u32,
    /// `None`: as remembered.
    pub request: Option<Box<Request>>,
}

#[derive(Debug)]
struct Group {
    slots: Vec<SlotIdx>,
    n_waiting: usize,
}

/// A set of places in a process set.
#[derive(Clone, Debug, Default)]
struct Places(Vec<u64>);

impl Tally {
    pub fn new(id: SetId, area: Area, members: Arc<[u32]>) -> Tally {
        let joined = Places::for_members(members.len());
        let mut tally = Tally {
            id,
            area,
            members,
            slots: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            recency: Links::default(),
            groups: IdMap::default(),
            joined,
            n_joined: 0,
            last_joined: 0,
            last_progress: Duration::ZERO,
        };
        tally.new_slot(BARRIER_NAME.into());
        tally
    }

    pub fn place_of(&self, rank: u32) -> Option<u32> {
        self.members.binary_search(&rank).ok().map(|place| place as u32)
    }

    pub fn slot_of(&mut self, name: &Arc<str>) -> SlotIdx {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.new_slot(name.clone());
        self.by_name.insert(name.clone(), slot);
        slot
    }

    fn new_slot(&mut self, name: Arc<str>) -> SlotIdx {
        let seen = Places::for_members(self.members.len());
        let slot = Slot {
            name,
            cached: None,
            arrivals: Vec::new(),
            seen,
            entry: None,
            group: None,
            since: Duration::ZERO,
            serial: 0,
            complete: false,
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
    pub fn bind_group(&mut self, serial: u64, slots: impl Iterator<Item = SlotIdx>) {
        let mut bound = Vec::new();
        for slot in slots {
            if self.slots[slot].arrivals.is_empty() && self.slots[slot].group.is_none() {
                self.slots[slot].group = Some(serial);
                bound.push(slot);
            }
        }
        if !bound.is_empty() {
            self.groups.insert(serial, Group { n_waiting: bound.len(), slots: bound });
        }
    }

    /// Notes one rank's wish; what is now to be released goes to `ready`. False when the rank had asked already, which no
    /// honest rank does.
    pub fn arrive(
        &mut self,
        slot: SlotIdx,
        arrival: Arrival,
        serial: u64,
        now: Duration,
        ready: &mut Vec<SlotIdx>,
    ) -> bool {
        let waiting = &mut self.slots[slot];
        if !waiting.seen.insert(arrival.place) {
            return false;
        }
        if waiting.arrivals.is_empty() {
            (waiting.since, waiting.serial) = (now, serial);
        }
        if arrival.request.is_none() && waiting.entry.is_none() {
            waiting.entry = waiting.cached.as_ref().map(|(_, entry)| entry.clone());
        }
        waiting.arrivals.push(arrival);
        self.complete_if_covered(slot, ready);
        true
    }

    /// The rank counts as ready for everything until all have joined. False when it had joined already.
    pub fn join(&mut self, place: u32, rank: u32, now: Duration, ready: &mut Vec<SlotIdx>) -> bool {
        if !self.joined.insert(place) {
            return false;
        }
        self.n_joined += 1;
        (self.last_joined, self.last_progress) = (rank, now);
        for slot in self.waiting() {
            self.complete_if_covered(slot, ready);
        }
        true
    }

    pub fn all_joined(&self) -> bool {
        self.n_joined == self.members.len()
    }

    pub fn forget_joins(&mut self) {
        self.n_joined = 0;
        self.joined.clear();
    }

    /// Slots for which somebody has asked, in the order in which they began to wait.
    pub fn waiting(&self) -> Vec<SlotIdx> {
        let waiting = |slot: &SlotIdx| !self.slots[*slot].arrivals.is_empty();
        let mut slots: Vec<SlotIdx> = (0..self.slots.len()).filter(waiting).collect();
        slots.sort_by_key(|slot| self.slots[*slot].serial);
        slots
    }

    /// Places that have neither asked for this nor joined.
    pub fn missing(&self, slot: SlotIdx) -> impl Iterator<Item = u32> {
        let seen = &self.slots[slot].seen;
        (0..self.members.len() as u32).filter(|place| !seen.contains(*place) && !self.joined.contains(*place))
    }

    /// Places that have not asked for this.
    pub fn absent(&self, slot: SlotIdx) -> Vec<u32> {
        if self.slots[slot].arrivals.len() == self.members.len() {
            return Vec::new();
        }
        (0..self.members.len() as u32).filter(|place| !self.slots[slot].seen.contains(*place)).collect()
    }

    pub fn not_joined(&self) -> impl Iterator<Item = u32> {
        (0..self.members.len() as u32).filter(|place| !self.joined.contains(*place))
    }

    /// What was asked for is on its way: the name can be asked for anew.
    pub fn clear(&mut self, slot: SlotIdx) {
        let done = &mut self.slots[slot];
        done.arrivals.clear();
        done.seen.clear();
        (done.entry, done.group, done.complete) = (None, None, false);
        self.free_if_unused(slot);
    }

    pub fn free_if_unused(&mut self, slot: SlotIdx) {
        let unused = &self.slots[slot];
        if slot != BARRIER && unused.arrivals.is_empty() && unused.group.is_none() && unused.cached.is_none() {
            self.by_name.remove(&unused.name);
            self.free.push(slot);
        }
    }

    fn complete_if_covered(&mut self, slot: SlotIdx, ready: &mut Vec<SlotIdx>) {
        let waiting = &mut self.slots[slot];
        let n_members = self.members.len();
        let everybody = waiting.arrivals.len() == n_members
            || (self.n_joined > 0 && waiting.seen.covers_with(&self.joined, n_members));
        if !everybody || waiting.complete {
            return;
        }
        waiting.complete = true;
        let Some(serial) = waiting.group else { return ready.push(slot) };
        let group = self.groups.get_mut(&serial).expect("a group lives until its last tensor is complete");
        group.n_waiting -= 1;
        if group.n_waiting == 0 {
            ready.extend(self.groups.remove(&serial).expect("seen just now").slots);
        }
    }
}

impl Places {
    fn for_members(n_members: usize) -> Places {
        Places(vec![0; n_members.div_ceil(64)])
    }

    fn insert(&mut self, place: u32) -> bool {
        let word = &mut self.0[place as usize / 64];
        let bit = 1 << (place % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn contains(&self, place: u32) -> bool {
        self.0[place as usize / 64] & (1 << (place % 64)) != 0
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn covers_with(&self, other: &Places, n_members: usize) -> bool {
        let covered: u32 = self.0.iter().zip(&other.0).map(|(a, b)| (a | b).count_ones()).sum();
        covered as usize == n_members
    }
}
