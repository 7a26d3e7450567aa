//! The coordinator itself: what ranks send comes in, what each rank is to do comes out. The engine of global rank 0 enters. No
//! clock, no I/O, no threads: time is an argument, and nothing here waits for it.
//!
//! Everything that is decided goes into one queue. [`Coordinator::drain`] empties it into the ranks' streams: each of them is a part
//! of one order, so ranks that carry out their streams in order never wait for each other in a circle. What became
//! ready since the last drain is fused.

mod construct_response;
pub(super) mod fusion;
mod lru_list;
mod message_table;
mod negotiation_events;
mod process_sets;
mod response_cache;
mod response_queue;
mod set_response;
mod stall_inspector;
mod validate;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Config;
use crate::coordinator::id_map::IdMap;
use crate::coordinator::message::{RequestItem, ShutdownReason, ToCoordinator, ToWorker, Tuning};
use crate::coordinator::request::{CacheId, GLOBAL_GENERATION, SetGeneration, SetId};
use lru_list::SlotIdx;
use message_table::{BARRIER, MessageTable, RankRequest};
use process_sets::SetRequests;
use response_queue::{QueuedMessage, ResponseQueue};
use stall_inspector::StallInspector;

pub use negotiation_events::{NegotiationEvent, NegotiationEvents};
pub use stall_inspector::{IncompleteOp, MissingRank, StallLimits, StallReport};

#[derive(Debug)]
pub struct Coordinator {
    pub(super) config: Config,
    /// Position: where [`Slots`](SlotIdx) of a cache id are found without hashing the area.
    pub(super) tables: Vec<Option<MessageTable>>,
    pub(super) by_generation: IdMap<SetGeneration, usize>,
    pub(super) by_id: IdMap<CacheId, (usize, SlotIdx)>,
    pub(super) queue: ResponseQueue,
    pub(super) set_requests: SetRequests,
    pub(super) stall: StallInspector,
    pub(super) events: NegotiationEvents,
    ranks: Vec<RankState>,
    pub(super) next_cache_id: CacheId,
    next_serial: u64,
    ended: bool,
    pub(super) ready: Vec<SlotIdx>,
}

#[derive(Debug, Default)]
struct RankState {
    /// Submissions looked at.
    n_submissions: u64,
    /// What came after a submission that was turned down, until that comes again.
    deferred: Option<VecDeque<ToCoordinator>>,
}

impl Coordinator {
    pub fn new(config: Config) -> Coordinator {
        let size = config.hosts.len() as u32;
        let mut coordinator = Coordinator {
            tables: Vec::new(),
            by_generation: IdMap::default(),
            by_id: IdMap::default(),
            queue: ResponseQueue::new(size),
            set_requests: SetRequests::new(size),
            stall: StallInspector::default(),
            events: NegotiationEvents::default(),
            ranks: (0..size).map(|_| RankState::default()).collect(),
            next_cache_id: 1,
            next_serial: 1,
            ended: false,
            ready: Vec::new(),
            config,
        };
        coordinator.open_set(SetId::GLOBAL, GLOBAL_GENERATION, (0..size).collect());
        coordinator
    }

    /// What one rank sends. Messages that came too late (their set is gone) say nothing to anybody.
    pub fn on_message(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        if self.ended || from >= self.size() {
            return;
        }
        let deferred = &mut self.ranks[from as usize].deferred;
        match (message, deferred) {
            (ToCoordinator::Shutdown, _) => self.shut_down(ShutdownReason::Requested { rank: from }),
            (ToCoordinator::Resubmit { grouped, items }, deferred) => {
                let mut deferred = deferred.take().unwrap_or_default();
                self.add_items(from, grouped, items, now);
                while self.ranks[from as usize].deferred.is_none()
                    && let Some(message) = deferred.pop_front()
                {
                    self.process(from, message, now);
                }
                if let Some(deferred_again) = &mut self.ranks[from as usize].deferred {
                    *deferred_again = deferred;
                }
            }
            (message, Some(deferred)) => deferred.push_back(message),
            (message, None) => self.process(from, message, now),
        }
    }

    /// A message whose turn has come.
    fn process(&mut self, from: u32, message: ToCoordinator, now: Duration) {
        match message {
            ToCoordinator::CacheHit(id) => self.on_cache_hit(from, id, now),
            ToCoordinator::Submit { grouped, items } => {
                let submission = self.count_submission(from);
                let unknown =
                    |item: &RequestItem| matches!(item, RequestItem::Cached(id) if !self.by_id.contains_key(id));
                match items.iter().any(unknown) {
                    true => self.request_resend(from, submission),
                    false => self.add_items(from, grouped, items, now),
                }
            }
            ToCoordinator::Barrier(generation) => {
                let Some((table, set_rank)) = self.table_for(generation, from) else { return };
                let mut ready = std::mem::take(&mut self.ready);
                self.add_request(table, BARRIER, RankRequest { set_rank, full: None }, now, &mut ready);
                self.construct_responses(table, ready, now);
            }
            ToCoordinator::Join(generation) => self.on_join(from, generation, now),
            ToCoordinator::RegisterSets(sets) => self.on_register(from, sets, now),
            ToCoordinator::AddSet(ranks) => self.on_add_set(from, ranks, now),
            ToCoordinator::RemoveSet(generation) => self.on_remove_set(from, generation, now),
            // Never held, and looked at on arrival.
            ToCoordinator::Resubmit { .. } | ToCoordinator::Shutdown => {}
        }
    }

    /// A rank is gone, as `text` says with its number and host: everybody else ends.
    pub fn on_rank_lost(&mut self, rank: u32, text: &str) {
        self.shut_down(ShutdownReason::Lost { rank, text: text.into() });
    }

    /// From now on all ranks use these.
    pub fn tune(&mut self, tuning: Tuning) {
        self.config.fusion_threshold = tuning.fusion_threshold;
        self.queue.send_all(ToWorker::Tune(tuning));
    }

    /// Hands every rank what it has to be told, in order; ranks with nothing to hear are left out.
    pub fn drain(&mut self, send: impl FnMut(u32, &[ToWorker])) {
        let limits = fusion::FusionLimits {
            threshold: self.config.threshold(),
            disable_group_fusion: self.config.disable_group_fusion,
        };
        self.queue.drain(limits, send);
    }

    /// Whether [`Coordinator::drain`] has anything to hand out.
    pub fn has_output(&self) -> bool {
        !self.queue.is_empty()
    }

    pub fn events(&mut self) -> &mut NegotiationEvents {
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
                    self.queue.push(QueuedMessage::Multicast(others, ToWorker::Shutdown(reason)));
                }
                _ => self.queue.send_all(ToWorker::Shutdown(reason)),
            }
        }
    }

    pub(super) fn open_set(&mut self, id: SetId, generation: SetGeneration, members: Arc<[u32]>) {
        let free = self.tables.iter().position(Option::is_none);
        let table_idx = free.unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[table_idx] = Some(MessageTable::new(id, generation, members));
        self.by_generation.insert(generation, table_idx);
    }

    /// What waits in the set is forgotten: its members fail it themselves when they hear of the removal.
    pub(super) fn close_set(&mut self, generation: SetGeneration) -> Option<SetId> {
        let table_idx = self.by_generation.remove(&generation)?;
        let table = self.tables[table_idx].take()?;
        for (id, _) in table.slots.iter().filter_map(|slot| slot.cached.as_ref()) {
            self.by_id.remove(id);
        }
        Some(table.id)
    }

    fn table_for(&self, generation: SetGeneration, rank: u32) -> Option<(usize, u32)> {
        let table_idx = *self.by_generation.get(&generation)?;
        Some((table_idx, self.table(table_idx).set_rank_of(rank)?))
    }

    fn table(&self, table_idx: usize) -> &MessageTable {
        self.tables[table_idx].as_ref().expect("positions are handed out for open sets only")
    }

    fn table_mut(&mut self, table_idx: usize) -> &mut MessageTable {
        self.tables[table_idx].as_mut().expect("positions are handed out for open sets only")
    }

    fn on_cache_hit(&mut self, from: u32, id: CacheId, now: Duration) {
        let submission = self.count_submission(from);
        let Some((table_idx, slot)) = self.by_id.get(&id).copied() else {
            return self.request_resend(from, submission);
        };
        let Some(set_rank) = self.table(table_idx).set_rank_of(from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        self.add_request(table_idx, slot, RankRequest { set_rank, full: None }, now, &mut ready);
        self.construct_responses(table_idx, ready, now);
    }

    fn request_resend(&mut self, from: u32, submission: u64) {
        self.ranks[from as usize].deferred = Some(VecDeque::new());
        self.queue.push(QueuedMessage::Unicast(from, ToWorker::Resend(submission)));
    }

    fn add_items(&mut self, from: u32, grouped: bool, items: Vec<RequestItem>, now: Duration) {
        let mut incoming: Vec<(usize, SlotIdx, RankRequest)> = Vec::with_capacity(items.len());
        for item in items {
            let (table_idx, slot, request) = match item {
                RequestItem::Cached(id) => {
                    let Some((table_idx, slot)) = self.by_id.get(&id).copied() else { continue };
                    (table_idx, slot, None)
                }
                RequestItem::Full(generation, request) => {
                    let Some((table_idx, _)) = self.table_for(generation, from) else { continue };
                    (table_idx, self.table_mut(table_idx).slot_for(&request.name), Some(request))
                }
            };
            let Some(set_rank) = self.table(table_idx).set_rank_of(from) else { continue };
            incoming.push((table_idx, slot, RankRequest { set_rank, full: request }));
        }
        let Some((first, ..)) = incoming.first() else { return };
        let first = *first;
        if grouped {
            let serial = self.next_serial();
            let slots = incoming.iter().filter(|(table_idx, ..)| *table_idx == first).map(|(_, slot, _)| *slot);
            self.tables[first].as_mut().expect("looked up just now").bind_group(serial, slots);
        }
        // Everything arrives before anything is settled: settling may forget what an id of this submission stands for.
        let mut ready = std::mem::take(&mut self.ready);
        let mut current = first;
        for (table_idx, slot, request) in incoming {
            if table_idx != current {
                ready = self.construct_into(current, ready, now);
                current = table_idx;
            }
            self.add_request(table_idx, slot, request, now, &mut ready);
        }
        self.construct_responses(current, ready, now);
    }

    fn on_join(&mut self, from: u32, generation: SetGeneration, now: Duration) {
        let Some((table_idx, set_rank)) = self.table_for(generation, from) else { return };
        let mut ready = std::mem::take(&mut self.ready);
        let is_new = self.table_mut(table_idx).join(set_rank, from, now, &mut ready);
        self.construct_responses(table_idx, ready, now);
        let table = self.table_mut(table_idx);
        if is_new && table.all_joined() {
            table.clear_joins();
            let (members, last) = (table.members.clone(), table.last_joined);
            self.queue.push(QueuedMessage::Multicast(members, ToWorker::Joined { generation, last }));
        }
    }

    fn add_request(
        &mut self,
        table_idx: usize,
        slot: SlotIdx,
        request: RankRequest,
        now: Duration,
        ready: &mut Vec<SlotIdx>,
    ) {
        let serial = self.next_serial();
        let table = self.tables[table_idx].as_mut().expect("positions are handed out for open sets only");
        if self.events.is_enabled() {
            self.events.on_request(table, slot, &request);
        }
        table.add_request(slot, request, serial, now, ready);
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
        let tables = || self.tables.iter().flatten();
        Footprint {
            n_ids: self.by_id.len(),
            n_names: tables().map(|table| table.by_name.len()).sum(),
            n_slots: tables().map(|table| table.slots.len()).sum(),
        }
    }
}
