//! The coordinator itself: what ranks send comes in, what each rank is to do comes out. The engine of global rank 0 enters. No
//! clock, no I/O, no threads: time is an argument, and nothing here waits for it.
//!
//! Everything that is decided goes into one queue. [`Coordinator::drain`] empties it into the ranks' streams: each of them is a part
//! of one order, so ranks that carry out their streams in order never wait for each other in a circle. What became
//! ready since the last drain is fused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::event::Events;
use super::ids::IdMap;
use super::message::{Area, CacheId, GLOBAL_AREA, SetId, ShutdownReason, Submitted, ToCoordinator, ToMember, Tuning};
use super::queue::{Queue, Queued};
use super::sets::SetWishes;
use super::stall::StallClock;
use super::tally::{Arrival, BARRIER, SlotIdx, Tally};
use super::{Config, fusion};

#[derive(Debug)]
pub struct Coordinator {
    pub(super) config: Config,
    /// Position: where [`Slots`](SlotIdx) of a cache id are found without hashing the area.
    pub(super) tallies: Vec<Option<Tally>>,
    pub(super) by_area: IdMap<Area, usize>,
    pub(super) by_id: IdMap<CacheId, (usize, SlotIdx)>,
    pub(super) queue: Queue,
    pub(super) wishes: SetWishes,
    pub(super) stall: StallClock,
    pub(super) events: Events,
    ranks: Vec<Rank>,
    pub(super) next_cache_id: CacheId,
    next_serial: u64,
    ended: bool,
    pub(super) ready: Vec<SlotIdx>,
}

#[derive(Debug, Default)]
struct Rank {
    /// Submissions looked at.
    n_submissions: u64,
    /// What came after a submission that was turned down, until that comes again.
    held: Option<VecDeque<ToCoordinator>>,
}

impl Coordinator {
    pub fn new(config: Config) -> Coordinator {
        let size = config.hosts.len() as u32;
        let mut coordinator = Coordinator {
            tallies: Vec::new(),
            by_area: IdMap::default(),
            by_id: IdMap::default(),
            queue: Queue::new(size),
            wishes: SetWishes::new(size),
            stall: StallClock::default(),
            events: Events::default(),
            ranks: (0..size).map(|_| Rank::default()).collect(),
            next_cache_id: 1,
            next_serial: 1,
            ended: false,
            ready: Vec::new(),
            config,
        };
        coordinator.open(SetId::GLOBAL, GLOBAL_AREA, (0..size).collect());
        coordinator
    }

    /// What one rank sends. Messages that came too late (their set is gone) say nothing to anybody.
    pub fn on_message(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        if self.ended || from >= self.size() {
            return;
        }
        let held = &mut self.ranks[from as usize].held;
        match (message, held) {
            (ToCoordinator::Shutdown, _) => self.shut_down(ShutdownReason::Asked { rank: from }),
            (ToCoordinator::Again { grouped, items }, held) => {
                let mut held = held.take().unwrap_or_default();
                self.on_submitted(from, grouped, items, now);
                while self.ranks[from as usize].held.is_none()
                    && let Some(message) = held.pop_front()
                {
                    self.on_next(from, message, now);
                }
                if let Some(held_again) = &mut self.ranks[from as usize].held {
                    *held_again = held;
                }
            }
            (message, Some(held)) => held.push_back(message),
            (message, None) => self.on_next(from, message, now),
        }
    }

    /// A message whose turn has come.
    fn on_next(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        match message {
            ToCoordinator::Hit(id) => self.on_hit(from, id, now),
            ToCoordinator::Submit { grouped, items } => {
                let submission = self.count_submission(from);
                let unknown = |item: &Submitted| matches!(item, Submitted::Hit(id) if !self.by_id.contains_key(id));
                match items.iter().any(unknown) {
                    true => self.turn_down(from, submission),
                    false => self.on_submitted(from, grouped, items, now),
                }
            }
            ToCoordinator::Barrier(area) => {
                let Some((tally, place)) = self.tally_of(area, from) else { return };
                let mut ready = std::mem::take(&mut self.ready);
                self.arrive(tally, BARRIER, Arrival { place, request: None }, now, &mut ready);
                self.settle_all(tally, ready, now);
            }
            ToCoordinator::Join(area) => self.on_join(from, area, now),
            ToCoordinator::Register(sets) => self.on_register(from, sets, now),
            ToCoordinator::AddSet(ranks) => self.on_add_set(from, ranks, now),
            ToCoordinator::RemoveSet(area) => self.on_remove_set(from, area, now),
            // Never held, and looked at on arrival.
            ToCoordinator::Again { .. } | ToCoordinator::Shutdown => {}
        }
    }

    /// A rank is gone, as `text` says with its number and host: everybody else ends.
    pub fn on_lost(&mut self, rank: u32, text: &str) {
        self.shut_down(ShutdownReason::Lost { rank, text: text.into() });
    }

    /// From now on all ranks use these.
    pub fn tune(&mut self, tuning: Tuning) {
        self.config.fusion_threshold = tuning.fusion_threshold;
        self.queue.tell_all(ToMember::Tune(tuning));
    }

    /// Hands every rank what it has to be told, in order; ranks with nothing to hear are left out.
    pub fn drain(&mut self, send: impl FnMut(u32, &[ToMember])) {
        let limits = fusion::Limits { threshold: self.config.threshold(), groups_apart: self.config.groups_apart };
        self.queue.drain(limits, send);
    }

    /// Whether [`Coordinator::drain`] has anything to hand out.
    pub fn has_news(&self) -> bool {
        !self.queue.is_empty()
    }

    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn size(&self) -> u32 {
        self.config.hosts.len() as u32
    }

    pub(super) fn shut_down(&mut self, reason: ShutdownReason) {
        if !std::mem::replace(&mut self.ended, true) {
            match reason {
                ShutdownReason::Lost { rank, .. } => {
                    let others: Arc<[u32]> = (0..self.size()).filter(|other| *other != rank).collect();
                    self.queue.push(Queued::Tell(others, ToMember::Shutdown(reason)));
                }
                _ => self.queue.tell_all(ToMember::Shutdown(reason)),
            }
        }
    }

    pub(super) fn open(&mut self, id: SetId, area: Area, members: Arc<[u32]>) {
        let free = self.tallies.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.tallies.push(None);
            self.tallies.len() - 1
        });
        self.tallies[at] = Some(Tally::new(id, area, members));
        self.by_area.insert(area, at);
    }

    /// What waits in the set is forgotten: its members fail it themselves when they hear of the removal.
    pub(super) fn close(&mut self, area: Area) -> Option<SetId> {
        let at = self.by_area.remove(&area)?;
        let tally = self.tallies[at].take()?;
        for (id, _) in tally.slots.iter().filter_map(|slot| slot.cached.as_ref()) {
            self.by_id.remove(id);
        }
        Some(tally.id)
    }

    fn tally_of(&self, area: Area, rank: u32) -> Option<(usize, u32)> {
        let at = *self.by_area.get(&area)?;
        Some((at, self.tally(at).place_of(rank)?))
    }

    fn tally(&self, at: usize) -> &Tally {
        self.tallies[at].as_ref().expect("positions are handed out for open sets only")
    }

    fn tally_mut(&mut self, at: usize) -> &mut Tally {
        self.tallies[at].as_mut().expect("positions are handed out for open sets only")
    }

    fn on_hit(&mut self, from: u32, id: CacheId, now: Duration) {
        let submission = self.count_submission(from);
        let Some((at, slot)) = self.by_id.get(&id).copied() else {
            return self.turn_down(from, submission);
        };
        let Some(place) = self.tally(at).place_of(from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        self.arrive(at, slot, Arrival { place, request: None }, now, &mut ready);
        self.settle_all(at, ready, now);
    }

    fn turn_down(&mut self, from: u32, submission: u64) {
        self.ranks[from as usize].held = Some(VecDeque::new());
        self.queue.push(Queued::TellOne(from, ToMember::Resend(submission)));
    }

    fn on_submitted(&mut self, from: u32, grouped: bool, items: Vec<Submitted>, now: Duration) {
        let mut arriving: Vec<(usize, SlotIdx, Arrival)> = Vec::with_capacity(items.len());
        for item in items {
            let (at, slot, request) = match item {
                Submitted::Hit(id) => {
                    let Some((at, slot)) = self.by_id.get(&id).copied() else { continue };
                    (at, slot, None)
                }
                Submitted::Full(area, request) => {
                    let Some((at, _)) = self.tally_of(area, from) else { continue };
                    (at, self.tally_mut(at).slot_of(&request.name), Some(request))
                }
            };
            let Some(place) = self.tally(at).place_of(from) else { continue };
            arriving.push((at, slot, Arrival { place, request }));
        }
        let Some((first, ..)) = arriving.first() else { return };
        let first = *first;
        if grouped {
            let serial = self.next_serial();
            let slots = arriving.iter().filter(|(at, ..)| *at == first).map(|(_, slot, _)| *slot);
            self.tallies[first].as_mut().expect("looked up just now").bind_group(serial, slots);
        }
        // Everything arrives before anything is settled: settling may forget what an id of this submission stands for.
        let mut ready = std::mem::take(&mut self.ready);
        let mut current = first;
        for (at, slot, arrival) in arriving {
            if at != current {
                ready = self.settle(current, ready, now);
                current = at;
            }
            self.arrive(at, slot, arrival, now, &mut ready);
        }
        self.settle_all(current, ready, now);
    }

    fn on_join(&mut self, from: u32, area: Area, now: Duration) {
        let Some((at, place)) = self.tally_of(area, from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        let is_new = self.tally_mut(at).join(place, from, now, &mut ready);
        self.settle_all(at, ready, now);
        let tally = self.tally_mut(at);
        if is_new && tally.all_joined() {
            tally.forget_joins();
            let (members, last) = (tally.members.clone(), tally.last_joined);
            self.queue.push(Queued::Tell(members, ToMember::Joined { area, last }));
        }
    }

    fn arrive(&mut self, at: usize, slot: SlotIdx, arrival: Arrival, now: Duration, ready: &mut Vec<SlotIdx>) {
        let serial = self.next_serial();
        let tally = self.tallies[at].as_mut().expect("positions are handed out for open sets only");
        if self.events.is_on() {
            self.events.on_arrival(tally, slot, &arrival);
        }
        tally.arrive(slot, arrival, serial, now, ready);
    }

    fn count_submission(&mut self, from: u32) -> u64 {
        let n = &mut self.ranks[from as usize].n_submissions;
        *n += 1;
        *n - 1
    }

    fn next_serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }
}

/// How much is kept, for tests of what must not grow.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub struct Footprint {
    pub n_ids: usize,
    pub n_names: usize,
    pub n_slots: usize,
}

#[cfg(test)]
impl Coordinator {
    pub fn footprint(&self) -> Footprint {
        let tallies = || self.tallies.iter().flatten();
        Footprint {
            n_ids: self.by_id.len(),
            n_names: tallies().map(|tally| tally.by_name.len()).sum(),
            n_slots: tallies().map(|tally| tally.slots.len()).sum(),
        }
    }
}
